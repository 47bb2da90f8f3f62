//! Scene of spheres above a floor, a light and a camera; and its slabs, one for each server.

use crate::vector::Vector;

/// Position of the light.
pub(crate) const LIGHT: Vector = Vector::new(-2.0, 9.0, -5.0);
/// Nearer hits are of the surface from which the ray starts.
const NEAR: f64 = 1e-6;
/// Distance to a slab within which spheres belong to it: more than rounding errors of any point.
const MARGIN: f64 = 1e-3;
/// Half the extent of the spheres along x.
const WIDTH: f64 = 4.5;
const SPHERES: u32 = 48;

/// Object of the scene.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum SceneObject {
    Sphere {
        centre: Vector,
        radius: f64,
        colour: Vector,
        mirror: f64,
    },
    /// Plane y = 0, in squares of two colours.
    Floor,
}

/// Hit of a ray on an object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Hit {
    /// Distance from the ray's origin.
    pub(crate) distance: f64,
    pub(crate) point: Vector,
    pub(crate) normal: Vector,
    pub(crate) colour: Vector,
    /// Share of light that is reflected.
    pub(crate) mirror: f64,
}

/// Objects of the scene or of a slab.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SceneObjects(Vec<SceneObject>);

impl SceneObjects {
    /// All objects of the scene.
    pub(crate) fn all() -> Self {
        let mut state = 7u64;
        // Knuth's MMIX generator; the upper bits, 0 to 1.
        let mut draw = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1u64 << 24) as f64
        };
        let mut objects = vec![SceneObject::Floor];
        for _ in 0..SPHERES {
            let radius = 0.2 + 0.45 * draw();
            let centre = Vector::new((2.0 * draw() - 1.0) * WIDTH, radius + 1.6 * draw() * draw(), 7.0 * draw() - 3.0);
            let colour = Vector::new(0.25 + 0.75 * draw(), 0.25 + 0.75 * draw(), 0.25 + 0.75 * draw());
            let mirror = if draw() < 0.6 { 0.25 + 0.55 * draw() } else { 0.0 };
            objects.push(SceneObject::Sphere { centre, radius, colour, mirror });
        }
        Self(objects)
    }

    /// Objects of a slab.
    pub(crate) fn of(slabs: Slabs, slab: usize) -> Self {
        let (from, to) = (slabs.lower(slab) - MARGIN, slabs.upper(slab) + MARGIN);
        let inside = |thing: &SceneObject| match thing {
            SceneObject::Sphere { centre, radius, .. } => centre.x + radius >= from && centre.x - radius <= to,
            SceneObject::Floor => true,
        };
        Self(Self::all().0.into_iter().filter(inside).collect())
    }

    /// First object that a ray hits.
    pub(crate) fn nearest(&self, origin: Vector, direction: Vector) -> Option<Hit> {
        let hits = self.0.iter().filter_map(|thing| Some((thing.hit(origin, direction)?, thing)));
        // At equal distances, the first object in the order of the scene, which is the same in each slab.
        let (distance, thing) = hits.reduce(|nearest, hit| if hit.0 < nearest.0 { hit } else { nearest })?;
        Some(thing.at(distance, origin + direction * distance))
    }

    /// True if an object is nearer than this distance.
    pub(crate) fn shade(&self, origin: Vector, direction: Vector, distance: f64) -> bool {
        self.0.iter().any(|thing| thing.hit(origin, direction).is_some_and(|hit| hit < distance))
    }
}

impl SceneObject {
    /// Distance of the object along a ray.
    fn hit(&self, origin: Vector, direction: Vector) -> Option<f64> {
        let distance = match self {
            Self::Floor => -origin.y / direction.y,
            Self::Sphere { centre, radius, .. } => {
                let from = origin - *centre;
                let (half, rest) = (from.dot(direction), from.dot(from) - radius * radius);
                let root = (half * half - rest).sqrt();
                // NaN if the ray misses the sphere, which all comparisons reject.
                if -half - root > NEAR { -half - root } else { -half + root }
            }
        };
        (distance > NEAR && distance < f64::INFINITY).then_some(distance)
    }

    fn at(&self, distance: f64, point: Vector) -> Hit {
        match *self {
            Self::Sphere { centre, radius, colour, mirror } => {
                Hit { distance, point, normal: (point - centre) * (1.0 / radius), colour, mirror }
            }
            Self::Floor => {
                let dark = (point.x.floor() + point.z.floor()).rem_euclid(2.0) == 0.0;
                let colour = if dark { Vector::new(0.16, 0.2, 0.28) } else { Vector::new(0.85, 0.83, 0.78) };
                Hit { distance, point, normal: Vector::new(0.0, 1.0, 0.0), colour, mirror: 0.12 }
            }
        }
    }
}

/// Scene cut across the x axis; the outermost slabs are unbounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slabs(pub(crate) usize);

impl Slabs {
    fn lower(self, slab: usize) -> f64 {
        match slab {
            0 => f64::NEG_INFINITY,
            _ => 2.0 * WIDTH * slab as f64 / self.0 as f64 - WIDTH,
        }
    }

    fn upper(self, slab: usize) -> f64 {
        if slab + 1 >= self.0 { f64::INFINITY } else { self.lower(slab + 1) }
    }

    /// Slab of a point.
    pub(crate) fn slab(self, point: Vector) -> usize {
        (0..self.0).find(|slab| point.x < self.upper(*slab)).unwrap_or(self.0.saturating_sub(1))
    }

    /// Distance at which a ray leaves a slab, and the next slab; `None` if it never leaves.
    pub(crate) fn exit(self, slab: usize, origin: Vector, direction: Vector) -> Option<(f64, usize)> {
        let (bound, next) = if direction.x > 0.0 {
            (self.upper(slab), slab + 1)
        } else if direction.x < 0.0 {
            (self.lower(slab), slab.checked_sub(1)?)
        } else {
            return None;
        };
        (next < self.0).then(|| ((bound - origin.x) / direction.x, next))
    }
}

/// Origin and direction of a pixel's ray.
pub(crate) fn camera(pixel: u32, width: u32, height: u32) -> (Vector, Vector) {
    let (eye, towards) = (Vector::new(-7.5, 2.6, -5.5), Vector::new(0.4, 0.7, 0.4));
    let forward = (towards - eye).normalised();
    let right = Vector::new(0.0, 1.0, 0.0).cross(forward).normalised();
    let up = forward.cross(right);
    let [column, row] = [pixel % width, pixel / width].map(f64::from);
    let (width, height) = (f64::from(width), f64::from(height));
    let (x, y) = ((column + 0.5 - width / 2.0) / height, (height / 2.0 - row - 0.5) / height);
    (eye, (forward * 1.3 + right * x + up * y).normalised())
}

/// Colour of a ray that hits nothing.
pub(crate) fn sky(direction: Vector) -> Vector {
    let height = direction.y.max(0.0);
    Vector::new(0.75, 0.85, 0.95) * (1.0 - height) + Vector::new(0.2, 0.4, 0.8) * height
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ray_passes_slabs_in_order() {
        let slabs = Slabs(4);
        let (left, right) = (Vector::new(-9.0, 1.0, 0.0), Vector::new(1.0, 0.0, 0.0));
        let mut seen = vec![slabs.slab(left)];
        let mut last = 0.0;
        while let Some((distance, next)) = slabs.exit(seen[seen.len() - 1], left, right) {
            assert!(distance > last);
            last = distance;
            seen.push(next);
        }
        assert_eq!(seen, [0, 1, 2, 3]);
        assert_eq!(slabs.exit(2, left, right * -1.0).map(|(_, next)| next), Some(1));
        assert_eq!(slabs.exit(0, left, right * -1.0), None);
        assert_eq!(slabs.exit(1, left, Vector::new(0.0, 1.0, 0.0)), None);
    }

    #[test]
    fn each_object_is_in_some_slab() {
        let slabs = Slabs(4);
        let all = SceneObjects::all().0;
        let parts: Vec<_> = (0..4).map(|slab| SceneObjects::of(slabs, slab).0).collect();
        assert!(all.iter().all(|thing| parts.iter().any(|part| part.contains(thing))));
        assert!(parts.iter().all(|part| part.len() < all.len() / 2), "{:?}", parts.iter().map(Vec::len));
    }
}
