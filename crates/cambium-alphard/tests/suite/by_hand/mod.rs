//! An executor whose tasks take steps when they are told to, and not before.

use std::sync::{Arc, Mutex};

use cambium_io::StepOutcome;
use cambium_io::step::{BackgroundTask, Executor, Task};

/// Tasks with their names.
#[derive(Clone, Default)]
pub struct ByHand {
    tasks: Arc<Mutex<Vec<(String, Task)>>>,
}

impl std::fmt::Debug for ByHand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ByHand")
    }
}

#[derive(Debug)]
struct Silent;

impl BackgroundTask for Silent {
    fn notify(&self) {}
}

impl Executor for ByHand {
    fn spawn(&self, name: &str, task: Task) -> Box<dyn BackgroundTask> {
        self.tasks.lock().unwrap().push((name.to_string(), task));
        Box::new(Silent)
    }

    fn runs_tasks(&self) -> bool {
        true
    }
}

impl ByHand {
    /// Takes one step of each task; those that are done go.
    pub fn run(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap());
        tasks.retain_mut(|(_, task)| task() != StepOutcome::Done);
        self.tasks.lock().unwrap().extend(tasks);
    }

    /// A step of each task of that name.
    fn step(&self, name: &str) {
        let mut tasks = std::mem::take(&mut *self.tasks.lock().unwrap());
        let mut ran = 0;
        for (_, task) in tasks.iter_mut().filter(|(found, _)| found == name) {
            ran += 1;
            assert_ne!(task(), StepOutcome::Done);
        }
        assert!(ran > 0, "no task {name}");
        self.tasks.lock().unwrap().extend(tasks);
    }

    pub fn work(&self) {
        self.step("alphard requests");
    }

    pub fn answer(&self) {
        self.step("alphard answers");
    }
}
