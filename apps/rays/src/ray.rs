//! Ray tracing of one ray: through slabs, to a surface, towards the light, and on by reflection.
//!
//! ```text
//! trace ── hit ──► shade ray to the light ──► bounce ──► trace …
//!   └── nothing: the sky's colour; over          └── often enough, or no mirror: over
//! ```
//!
//! A ray has the same result for the whole scene ([`colour`]) and slab after slab ([`Slab::advance`]): the same
//! operations on the same numbers in the same order, so the same bits.

use crate::scene::{Hit, LIGHT, SceneObjects, Slabs, sky};
use crate::vector::Vector;

/// Share of a surface's colour without light.
const AMBIENT: f64 = 0.18;
/// Numbers of a ray's encoded state.
pub(crate) const STATE: usize = 17;

/// Ray of a pixel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ray {
    pub(crate) pixel: u32,
    /// Remaining bounces.
    pub(crate) bounces: u32,
    origin: Vector,
    direction: Vector,
    /// Weight of the ray's colour in the pixel.
    weight: f64,
    /// Accumulated colour.
    colour: Vector,
    /// State while the ray is directed to the light.
    shadow: Option<Shadow>,
}

/// State of a shadow ray, and its continuation.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shadow {
    /// Distance to the light.
    distance: f64,
    /// Added colour if the light is visible.
    lit: Vector,
    /// Direction of the reflected ray.
    onward: Vector,
}

impl Ray {
    pub(crate) fn new(pixel: u32, bounces: u32, (origin, direction): (Vector, Vector)) -> Self {
        Self { pixel, bounces, origin, direction, weight: 1.0, colour: Vector::default(), shadow: None }
    }

    /// Encoded state.
    pub(crate) fn state(&self) -> [f64; STATE] {
        let Shadow { distance, lit, onward } =
            self.shadow.unwrap_or(Shadow { distance: 0.0, lit: Vector::default(), onward: Vector::default() });
        let mut state = [self.weight; STATE];
        let vectors = [self.origin, self.direction, self.colour, lit, onward];
        state[2..].iter_mut().zip(vectors.into_iter().flat_map(Vector::array)).for_each(|(to, from)| *to = from);
        state[1] = distance;
        state
    }

    /// Decodes a ray.
    pub(crate) fn with(pixel: u32, bounces: u32, state: &[f64; STATE]) -> Self {
        let vector = |nth: usize| Vector::new(state[2 + 3 * nth], state[3 + 3 * nth], state[4 + 3 * nth]);
        let shadow = Shadow { distance: state[1], lit: vector(3), onward: vector(4) };
        Self {
            pixel,
            bounces,
            origin: vector(0),
            direction: vector(1),
            weight: state[0],
            colour: vector(2),
            shadow: (state[1] > 0.0).then_some(shadow),
        }
    }

    /// Handles the hit of a surface. Returns whether the ray continues.
    fn handle_hit(&mut self, hit: &Hit) -> bool {
        let own = self.weight * (1.0 - hit.mirror);
        self.colour = self.colour + hit.colour * (own * AMBIENT);
        let onward = self.direction - hit.normal * (2.0 * self.direction.dot(hit.normal));
        self.weight *= hit.mirror;
        self.origin = hit.point;
        let to_light = LIGHT - hit.point;
        let distance = to_light.length();
        let direction = to_light * (1.0 / distance);
        let facing = hit.normal.dot(direction);
        if facing > 0.0 {
            self.direction = direction;
            self.shadow = Some(Shadow { distance, lit: hit.colour * (own * (1.0 - AMBIENT) * facing), onward });
            return true;
        }
        self.bounce(onward)
    }

    /// Handles the end of a shadow ray. Returns whether the ray continues.
    fn handle_shadow_end(&mut self, shadow: Shadow, lit: bool) -> bool {
        self.shadow = None;
        if lit {
            self.colour = self.colour + shadow.lit;
        }
        self.bounce(shadow.onward)
    }

    fn bounce(&mut self, onward: Vector) -> bool {
        self.direction = onward;
        let goes_on = self.bounces > 0 && self.weight > 0.0;
        self.bounces = self.bounces.saturating_sub(1);
        goes_on
    }

    fn sees_sky(&mut self) {
        self.colour = self.colour + sky(self.direction) * self.weight;
    }

    /// Colour of the pixel at the end of the ray.
    pub(crate) fn rgb(&self) -> [u8; 3] {
        self.colour.array().map(|part| (part.clamp(0.0, 1.0).sqrt() * 255.0 + 0.5) as u8)
    }
}

/// Follows a ray through the whole scene to its end: the local rendering.
pub(crate) fn colour(objects: &SceneObjects, mut ray: Ray) -> [u8; 3] {
    loop {
        let goes_on = match ray.shadow {
            Some(shadow) => {
                let lit = !objects.shade(ray.origin, ray.direction, shadow.distance);
                ray.handle_shadow_end(shadow, lit)
            }
            None => match objects.nearest(ray.origin, ray.direction) {
                Some(hit) => ray.handle_hit(&hit),
                None => {
                    ray.sees_sky();
                    false
                }
            },
        };
        if !goes_on {
            return ray.rgb();
        }
    }
}

/// Slab of the scene.
#[derive(Debug)]
pub(crate) struct Slab {
    number: usize,
    slabs: Slabs,
    objects: SceneObjects,
}

/// Position of a ray after a slab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// The ray enters this slab.
    Slab(usize),
    /// The ray has ended.
    Over,
}

impl Slab {
    pub(crate) fn new(slabs: Slabs, number: usize) -> Self {
        Self { number, slabs, objects: SceneObjects::of(slabs, number) }
    }

    /// Follows a ray within this slab.
    pub(crate) fn advance(&self, ray: &mut Ray) -> Next {
        loop {
            let exit = self.slabs.exit(self.number, ray.origin, ray.direction);
            let goes_on = match ray.shadow {
                Some(shadow) => {
                    let dark = self.objects.shade(ray.origin, ray.direction, shadow.distance);
                    match exit {
                        // The light is farther.
                        Some((distance, next)) if !dark && distance < shadow.distance => return Next::Slab(next),
                        _ => ray.handle_shadow_end(shadow, !dark),
                    }
                }
                None => match (self.objects.nearest(ray.origin, ray.direction), exit) {
                    // A hit behind the exit is the nearest one here, but possibly not in its own slab.
                    (Some(hit), Some((distance, next))) if hit.distance > distance => return Next::Slab(next),
                    (Some(hit), _) => ray.handle_hit(&hit),
                    (None, Some((_, next))) => return Next::Slab(next),
                    (None, None) => {
                        ray.sees_sky();
                        false
                    }
                },
            };
            if !goes_on {
                return Next::Over;
            }
            // A reflected ray begins at the surface, where the shadow ray may have started.
            let own = self.slabs.slab(ray.origin);
            if ray.shadow.is_none() && own != self.number {
                return Next::Slab(own);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::camera;

    #[test]
    fn ray_encoding_round_trips() {
        let mut ray = Ray::new(5, 3, camera(5, 10, 10));
        assert_eq!(Ray::with(5, 3, &ray.state()), ray);
        let hit = SceneObjects::all().nearest(ray.origin, Vector::new(0.5, -0.5, 0.5).normalised()).expect("the floor");
        assert!(ray.handle_hit(&hit) && ray.shadow.is_some());
        assert_eq!(Ray::with(5, 3, &ray.state()), ray);
    }

    #[test]
    fn slabs_give_same_bits_as_whole_scene() {
        let (width, height) = (80, 60);
        let all = SceneObjects::all();
        for count in [1, 2, 3, 5] {
            let slabs = Slabs(count);
            let parts: Vec<_> = (0..count).map(|slab| Slab::new(slabs, slab)).collect();
            let mut hops = 0;
            for pixel in 0..width * height {
                let mut ray = Ray::new(pixel, 4, camera(pixel, width, height));
                let expected = colour(&all, ray);
                let mut at = slabs.slab(ray.origin);
                while let Next::Slab(next) = parts[at].advance(&mut ray) {
                    (at, hops) = (next, hops + 1);
                }
                assert_eq!(ray.rgb(), expected, "pixel {pixel} of {count} slabs");
            }
            assert_eq!(hops > 0, count > 1, "rays go from slab to slab");
        }
    }
}
