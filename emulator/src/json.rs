//! A JSON writer for answers. It copies a stored image as it is, without an intermediate tree.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;

use crate::engine::image::Image;
use crate::expression::Projection;

/// Writes one JSON value, including the commas.
pub(crate) struct Writer {
    out: Vec<u8>,
    /// Whether the next key or element needs a comma.
    comma: bool,
}

impl Writer {
    /// Writes one whole object.
    pub(crate) fn document(members: impl FnOnce(&mut Self)) -> Vec<u8> {
        let mut writer = Self { out: Vec::with_capacity(256), comma: false };
        writer.object(members);
        writer.out
    }

    fn begin(&mut self) {
        if self.comma {
            self.out.push(b',');
        }
    }

    pub(crate) fn key(&mut self, name: &str) -> &mut Self {
        self.serialize(&name);
        self.out.push(b':');
        self.comma = false;
        self
    }

    pub(crate) fn object(&mut self, members: impl FnOnce(&mut Self)) {
        self.nested(b'{', b'}', members);
    }

    pub(crate) fn array(&mut self, elements: impl FnOnce(&mut Self)) {
        self.nested(b'[', b']', elements);
    }

    fn nested(&mut self, open: u8, close: u8, inside: impl FnOnce(&mut Self)) {
        self.begin();
        self.out.push(open);
        self.comma = false;
        inside(self);
        self.out.push(close);
        self.comma = true;
    }

    pub(crate) fn string(&mut self, text: &str) {
        self.serialize(&text);
    }

    /// Writes a number or boolean as it displays.
    pub(crate) fn plain(&mut self, value: impl Display) {
        self.begin();
        write!(self.out, "{value}").expect("a vector takes every write");
        self.comma = true;
    }

    pub(crate) fn serialize<T: Serialize + ?Sized>(&mut self, value: &T) {
        self.begin();
        serde_json::to_writer(&mut self.out, value).expect("a vector takes every write and the keys are strings");
        self.comma = true;
    }

    /// Writes a whole stored item.
    pub(crate) fn image(&mut self, image: &Image) {
        self.members(image.members());
    }

    /// Writes a stored item, or the parts of it that a projection selects.
    pub(crate) fn parts(&mut self, image: &Image, projection: Option<&Projection>) {
        match projection {
            None => self.image(image),
            Some(projection) => self.serialize(&projection.project(&image.item())),
        }
    }

    /// Writes an object of members that are serialised already.
    pub(crate) fn members(&mut self, members: &[u8]) {
        self.begin();
        self.out.push(b'{');
        self.out.extend_from_slice(members);
        self.out.push(b'}');
        self.comma = true;
    }
}
