//! Thread of a device over a library in memory: a kernel answers with the first byte of its table.

use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::device::accelerator::{ListedDevice, NotifyResult};
use crate::device::{DeviceKind, Kernel, WorkItemCount};

/// Timeout, reached only if the test hangs.
const LIMIT: Duration = Duration::from_secs(180);

/// Library in memory. Jobs end when the gate is open.
struct Fake {
    is_open: Arc<AtomicBool>,
    /// Error of each upload, and of each job.
    fails: [bool; 2],
    /// Reports memory that is freed, and the end of the library.
    dropped: Sender<&'static str>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = self.dropped.send("library");
    }
}

#[derive(Debug)]
struct FakeMemory(Vec<u8>, Sender<&'static str>);

impl Drop for FakeMemory {
    fn drop(&mut self) {
        let _ = self.1.send("memory");
    }
}

impl Registered for FakeMemory {
    fn output(&self) -> &[u8] {
        &self.0
    }
}

impl Accelerator for Fake {
    const KIND: DeviceKind = DeviceKind::Cuda;
    const POLL: Duration = Duration::from_micros(1);
    type Id = ();
    type Error = String;
    type Kernel = ();
    type Table = Mutex<Vec<u8>>;
    type Memory = FakeMemory;
    type Staging = Vec<u8>;
    type Event = ();

    fn list() -> Result<Vec<ListedDevice<()>>, String> {
        Ok(Vec::new())
    }

    fn open((): ()) -> Result<Self, String> {
        Err("not used".into())
    }

    fn has_thread(&self) -> bool {
        true
    }

    fn compile(&self, _: &Kernel) -> Result<Result<(), String>, String> {
        Ok(Ok(()))
    }

    fn table(&self, bytes: &[u8]) -> Result<Self::Table, String> {
        Ok(Mutex::new(bytes.to_vec()))
    }

    fn zeros(&self, bytes: usize) -> Result<Self::Table, String> {
        Ok(Mutex::new(vec![0; bytes]))
    }

    fn staging(&self, bytes: usize) -> Result<Vec<u8>, String> {
        Ok(vec![0; bytes])
    }

    fn copy(&self, part: TablePart<'_, Self>, direction: CopyDirection, with: &mut Vec<u8>) -> Result<(), String> {
        let table = &mut part.table.lock().expect("no panic")[part.at..part.at + part.len];
        match direction {
            CopyDirection::ToDevice => table.copy_from_slice(with),
            CopyDirection::FromDevice => with.copy_from_slice(table),
        }
        Ok(())
    }

    fn wait_for_copy(&self, copied: Vec<u8>) -> Result<Vec<u8>, String> {
        Ok(copied)
    }

    fn memory(&self, _: usize, output_max: usize) -> Result<FakeMemory, String> {
        Ok(FakeMemory(vec![0; output_max], self.dropped.clone()))
    }

    fn upload(&self, _: &mut FakeMemory, _: &Launch<'_>) -> Result<(), String> {
        if self.fails[0] { Err("no upload".into()) } else { Ok(()) }
    }

    fn launch(
        &self,
        kernel: &LoadedKernel<Self>,
        memory: &mut FakeMemory,
        _: &Launch<'_>,
        (): (),
    ) -> Result<(), String> {
        memory.0[0] = kernel.tables[0].raw.lock().expect("no panic")[0];
        Ok(())
    }

    fn download(&self, _: &mut FakeMemory, _: &Launch<'_>, (): ()) -> Result<(), String> {
        Ok(())
    }

    fn notify(&self, (): (), flight: Box<Flight<Self>>) -> NotifyResult<Self> {
        Ok(Some(flight))
    }

    fn has_ended(&self, _: &FakeMemory) -> Result<bool, String> {
        if self.fails[1] { Err("it is gone".into()) } else { Ok(self.is_open.load(Ordering::Acquire)) }
    }

    fn finish(&self) -> Result<(), String> {
        Ok(())
    }

    fn length(_: &FakeMemory) -> u32 {
        1
    }
}

/// Device with a kernel, and what its tests observe.
struct Bench {
    device: DeviceHandle<Fake>,
    kernel: Arc<LoadedKernel<Fake>>,
    is_open: Arc<AtomicBool>,
    dropped: Receiver<&'static str>,
    done: Sender<Completion>,
    completions: Receiver<Completion>,
    jobs: Arc<AtomicUsize>,
}

impl Bench {
    fn new(fails: [bool; 2]) -> Self {
        let ((dropped, drops), (done, completions)) = (unbounded(), unbounded());
        let is_open = Arc::new(AtomicBool::new(false));
        let table = Arc::new(DeviceTable { raw: Mutex::new(vec![0; 4]), len: 4 });
        let device = DeviceHandle::start(Fake { is_open: Arc::clone(&is_open), fails, dropped }).expect("a thread");
        let (items, length) = (WorkItemCount::Exactly(1), AnswerLength::Exactly(1));
        let kernel = LoadedKernel { kernel: Mutex::new(()), tables: vec![table], items, group: 1, length };
        let (kernel, jobs) = (Arc::new(kernel), Arc::default());
        Self { device, kernel, is_open, dropped: drops, done, completions, jobs }
    }

    fn memory(&self) -> JobMemory<Fake> {
        JobMemory::new(self.device.raw.memory(1, 1).expect("memory"), self.device.clone())
    }

    fn begin(&self, tag: u64) {
        self.jobs.fetch_add(1, Ordering::AcqRel);
        let (memory, done, jobs) = (Box::new(self.memory()), self.done.clone(), Arc::clone(&self.jobs));
        let length = self.kernel.length;
        let flight = Flight { memory, tag, input: 1, input_max: 1, output_max: 1, length, done, jobs };
        assert!(self.device.begin(Arc::clone(&self.kernel), Bytes::from_static(b"x"), Box::new(flight)));
    }

    fn completion(&self) -> Completion {
        self.completions.recv_timeout(LIMIT).expect("in time")
    }
}

#[test]
fn jobs_and_copies_are_executed_in_sequence() {
    let bench = Bench::new([false; 2]);
    for value in 1..=100 {
        bench.begin(u64::from(value));
        bench.device.write(&bench.kernel.tables[0], 0, &[value]).expect("written");
    }
    let mut last = [0; 2];
    bench.device.read(&bench.kernel.tables[0], 0, &mut last).expect("read");
    assert_eq!((last, bench.completions.len(), bench.jobs.load(Ordering::Acquire)), ([100, 0], 0, 100));
    bench.is_open.store(true, Ordering::Release);
    for value in 1..=100 {
        let Completion { tag, region, result, .. } = bench.completion();
        assert_eq!((tag, result), (value, Ok(1)));
        // The write before it, and not the one after it.
        assert_eq!(u64::from(region.expect("memory").output(1)[0]), value - 1);
    }
    assert_eq!(bench.jobs.load(Ordering::Acquire), 0);
}

#[test]
fn memory_is_freed_while_no_job_runs() {
    let bench = Bench::new([false; 2]);
    let unused = bench.memory();
    bench.begin(0);
    drop(unused);
    // The thread has this order after the one to free the memory.
    bench.device.write(&bench.kernel.tables[0], 0, &[1]).expect("written");
    assert!(bench.dropped.is_empty(), "freed during a job");
    bench.is_open.store(true, Ordering::Release);
    assert_eq!(bench.dropped.recv_timeout(LIMIT), Ok("memory"));
    drop(bench.completion());
    assert_eq!(bench.dropped.recv_timeout(LIMIT), Ok("memory"));
}

#[test]
fn failed_upload_and_failed_job_complete_with_error() {
    for (fails, reason) in [([true, false], "no upload"), ([false, true], "it is gone")] {
        let bench = Bench::new(fails);
        bench.begin(7);
        let Completion { tag, region, result, .. } = bench.completion();
        assert_eq!((tag, result, region.is_some()), (7, Err(JobError::Device(reason.into())), true));
        assert_eq!(bench.jobs.load(Ordering::Acquire), 0);
    }
}

#[test]
fn thread_ends_after_last_job_and_last_memory() {
    let bench = Bench::new([false; 2]);
    bench.begin(0);
    let Bench { device, kernel, is_open, dropped, completions, .. } = bench;
    drop((device, kernel));
    is_open.store(true, Ordering::Release);
    let completion = completions.recv_timeout(LIMIT).expect("in time");
    assert!(dropped.is_empty(), "the thread still has to free the memory");
    drop(completion);
    let ends = [(); 2].map(|()| dropped.recv_timeout(LIMIT));
    assert_eq!(ends, [Ok("memory"), Ok("library")]);
}
