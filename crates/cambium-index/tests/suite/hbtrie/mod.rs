//! The HB+-trie against a model: hard keys, all shapes, small nodes.

mod bulk;
mod damage;
mod deep;
mod families;
mod model;
mod world;
