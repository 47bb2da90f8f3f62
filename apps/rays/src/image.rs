//! Image: pixels that are set once each, tiles of one call each, and its file.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use crate::pb::{Batch, Pixels};
use crate::ray::{Ray, colour};
use crate::scene::{SceneObjects, Slabs, camera};

/// Size and depth of the rendering.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) bounces: u32,
}

impl View {
    fn ray(self, pixel: u32) -> Ray {
        Ray::new(pixel, self.bounces, camera(pixel, self.width, self.height))
    }

    fn pixels(self) -> u32 {
        self.width * self.height
    }

    /// Slab in which all rays begin.
    pub(crate) fn first(self, slabs: Slabs) -> usize {
        slabs.slab(camera(0, self.width, self.height).0)
    }

    /// Rays of the camera, in batches of this size.
    pub(crate) fn batches(self, rays: u32) -> impl Iterator<Item = Batch> {
        (0..self.pixels()).step_by(rays.max(1) as usize).map(move |from| {
            let mut batch = Batch::default();
            (from..self.pixels().min(from + rays.max(1))).for_each(|pixel| batch.push(&self.ray(pixel)));
            batch
        })
    }

    /// Renders the whole image locally.
    pub(crate) fn render(self) -> Vec<u8> {
        let objects = SceneObjects::all();
        (0..self.pixels()).flat_map(|pixel| colour(&objects, self.ray(pixel))).collect()
    }
}

/// Image whose pixels arrive in any order.
#[derive(Debug)]
pub(crate) struct Image {
    view: View,
    rgb: Vec<u8>,
    seen: Vec<bool>,
}

impl Image {
    pub(crate) fn new(view: View) -> Self {
        let pixels = view.pixels() as usize;
        Self { view, rgb: vec![0; pixels * 3], seen: vec![false; pixels] }
    }

    pub(crate) fn set(&mut self, pixels: &Pixels) -> Result<()> {
        let (colours, _) = pixels.colours.as_chunks::<3>();
        let (expected, got) = (pixels.pixels.len(), pixels.colours.len());
        ensure!(got == expected * 3, "expected 3 bytes for each of {expected} pixels, got {got}");
        for (pixel, colour) in pixels.pixels.iter().zip(colours) {
            let at = *pixel as usize;
            let seen = self.seen.get_mut(at).with_context(|| format!("unknown pixel {pixel}"))?;
            ensure!(!std::mem::replace(seen, true), "duplicate pixel {pixel}");
            self.rgb[at * 3..at * 3 + 3].copy_from_slice(colour);
        }
        Ok(())
    }

    /// Bytes of the image, if complete.
    pub(crate) fn complete(self) -> Result<Vec<u8>> {
        let missing = self.seen.iter().filter(|seen| !**seen).count();
        ensure!(missing == 0, "{missing} of {} pixels are missing", self.view.pixels());
        Ok(self.rgb)
    }
}

/// Writes a PNG file.
pub(crate) fn write(path: &Path, view: View, rgb: &[u8]) -> Result<()> {
    let what = || format!("cannot write image {}", path.display());
    let file = BufWriter::new(File::create(path).with_context(what)?);
    let mut encoder = png::Encoder::new(file, view.width, view.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().with_context(what)?;
    writer.write_image_data(rgb).with_context(what)?;
    writer.finish().with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pixel_is_set_once() {
        let view = View { width: 2, height: 1, bounces: 0 };
        let mut image = Image::new(view);
        image.set(&Pixels { pixels: vec![1], colours: vec![1, 2, 3] }).expect("the first");
        for (wrong, says) in [
            (Pixels { pixels: vec![1], colours: vec![1, 2, 3] }, "duplicate pixel 1"),
            (Pixels { pixels: vec![2], colours: vec![1, 2, 3] }, "unknown pixel 2"),
            (Pixels { pixels: vec![0], colours: vec![1] }, "expected 3 bytes for each of 1 pixels, got 1"),
        ] {
            assert_eq!(image.set(&wrong).unwrap_err().to_string(), says);
        }
        assert_eq!(image.complete().unwrap_err().to_string(), "1 of 2 pixels are missing");
    }
}
