//! One source for a byte layout: a constant table of fields that gives the
//! offsets, a compile-time check that nothing overlaps, and the markdown of
//! the format documents.

/// One field of a fixed layout.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// The field's name.
    pub name: &'static str,
    /// What it means, and which fault it defends against.
    pub meaning: &'static str,
}

/// A field of a table: offset, bytes, name and meaning.
pub const fn field(offset: usize, size: usize, name: &'static str, meaning: &'static str) -> Field {
    Field {
        offset,
        size,
        name,
        meaning,
    }
}

/// A named layout: the source of one table in `docs/format/`.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Title of the table.
    pub name: &'static str,
    /// Where in the file the structure stands, and why in this order.
    pub about: &'static str,
    /// The fields in order, without gaps.
    pub fields: &'static [Field],
    /// Bytes of the whole structure.
    pub size: usize,
}

impl Layout {
    /// Checks, at compile time when used in a `const`, that the fields follow
    /// one another without gap or overlap and fill the structure.
    ///
    /// # Panics
    /// If they do not.
    pub const fn checked(self) -> Self {
        let mut end = 0;
        let mut position = 0;
        while position < self.fields.len() {
            assert!(self.fields[position].offset == end, "a gap or an overlap");
            end += self.fields[position].size;
            position += 1;
        }
        assert!(end == self.size, "the fields do not fill the structure");
        self
    }

    /// The layout as a markdown section.
    pub fn markdown(&self) -> String {
        let mut text = format!(
            "### {}\n\n{}\n\n| offset | bytes | field | meaning |\n|---:|---:|---|---|\n",
            self.name, self.about
        );
        for field in self.fields {
            text += &format!(
                "| {} | {} | `{}` | {} |\n",
                field.offset, field.size, field.name, field.meaning
            );
        }
        text += &format!("\n{} bytes in all.\n", self.size);
        text
    }
}
