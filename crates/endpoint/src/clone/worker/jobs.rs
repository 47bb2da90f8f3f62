//! Requests that wait or are worked on.

use std::collections::VecDeque;

use bytes::Bytes;
use pathcall_wire::Instant;

use super::outgoing::Asked;
use super::{Key, WorkId};
use crate::tables::ByName;

/// A whole request.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) key: Key,
    /// The attempt that the answer is for: the newest, but for one that was cloned, because only by that the
    /// element can tell the other's answer from it.
    pub(super) asked: Asked,
    /// The newest attempt that has come.
    pub(super) newest: u8,
    pub(super) request: Bytes,
    pub(super) since: Instant,
    pub(super) begun: bool,
    /// Whether nobody wants its answer any more.
    pub(super) unwanted: bool,
    /// When its caller is told that it is worked on.
    pub(super) tell_at: Option<Instant>,
}

/// Jobs by place and by name, and the queue of those that wait: first come, first served.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    places: Vec<Place>,
    free: Vec<u32>,
    by_key: ByName<Key, WorkId>,
    /// Some are gone: they are skipped.
    queue: VecDeque<WorkId>,
    waiting: usize,
    /// Bytes of those that wait.
    memory: usize,
}

#[derive(Debug, Default)]
struct Place {
    /// Counts the jobs that were here: an id of a former one means nothing.
    generation: u32,
    job: Option<Job>,
}

/// Ids in the queue of jobs that are gone, beyond one for each that waits, before they are swept out.
const GONE_MAX: usize = 256;

impl Jobs {
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    pub(super) fn find(&self, key: &Key) -> Option<WorkId> {
        self.by_key.get(key).copied()
    }

    pub(super) fn get_mut(&mut self, id: WorkId) -> Option<&mut Job> {
        let place = self.places.get_mut(id.0 as u32 as usize)?;
        place.job.as_mut().filter(|_| place.generation == (id.0 >> 32) as u32)
    }

    /// Puts a job at the end of the queue.
    pub(super) fn push(&mut self, job: Job) -> WorkId {
        let at = self.free.pop().unwrap_or(self.places.len() as u32);
        if at as usize == self.places.len() {
            self.places.push(Place::default());
        }
        let place = &mut self.places[at as usize];
        place.generation = place.generation.wrapping_add(1);
        let id = WorkId(u64::from(place.generation) << 32 | u64::from(at));
        self.by_key.insert(job.key, id);
        self.waiting += 1;
        self.memory += job.request.len();
        place.job = Some(job);
        self.queue.push_back(id);
        id
    }

    /// Begins the job that has waited longest; its request is handed out.
    pub(super) fn begin(&mut self) -> Option<(WorkId, &mut Job)> {
        while let Some(id) = self.queue.pop_front() {
            if self.get_mut(id).is_some_and(|job| !job.begun) {
                self.waiting -= 1;
                let memory = self.get_mut(id).map_or(0, |job| job.request.len());
                self.memory -= memory;
                let job = self.get_mut(id)?;
                job.begun = true;
                return Some((id, job));
            }
        }
        None
    }

    /// Takes a job out.
    pub(super) fn remove(&mut self, id: WorkId) -> Option<Job> {
        self.get_mut(id)?;
        let at = id.0 as u32;
        let job = self.places[at as usize].job.take()?;
        self.free.push(at);
        self.by_key.remove(&job.key);
        if !job.begun {
            self.waiting -= 1;
            self.memory -= job.request.len();
            if self.queue.len() > 2 * self.waiting + GONE_MAX {
                let mut queue = std::mem::take(&mut self.queue);
                queue.retain(|id| self.get_mut(*id).is_some_and(|job| !job.begun));
                self.queue = queue;
            }
        }
        Some(job)
    }
}
