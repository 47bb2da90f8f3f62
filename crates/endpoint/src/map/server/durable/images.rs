//! Images: encoded states of single things in a batch, written and loaded.

use pathcall_wire::{Instant, Mutant, mutant};

use super::super::super::CommittedFrame;
use super::super::{EndedEpoch, MapServer, Member, MemberState};
use super::codec::{RecordReader, RecordWriter};
use super::{Changes, ResumeSecret};

/// Kinds of images.
const META: u8 = 1;
const KEY: u8 = 2;
const MEMBER: u8 = 3;
const MEMBER_GONE: u8 = 4;
const FRAME: u8 = 5;
const COMMITTED: u8 = 6;
const JOURNAL: u8 = 7;
const JOURNAL_GONE: u8 = 8;
const CALL_ID: u8 = 9;
const CALL_ID_GONE: u8 = 10;
const NOTE: u8 = 11;

impl MapServer {
    /// Images of everything that has changed.
    pub(super) fn write_changes(&mut self) -> Vec<u8> {
        let mut writer = RecordWriter::default();
        let next = Changes { on: true, notes_from: self.durable.notes.len(), ..Changes::default() };
        let Changes { meta, members, frames, notes_from, .. } = std::mem::replace(&mut self.shared.changes, next);
        if meta || self.keyed.changed.meta {
            self.write_meta(&mut writer);
        }
        for endpoint in members {
            match self.shared.members.get(&endpoint) {
                Some(state) => write_member(state, &mut writer),
                None => {
                    writer.number(MEMBER_GONE);
                    writer.number(endpoint);
                }
            }
        }
        // The frames of a member that has left went with it.
        for (endpoint, flow, seq) in frames {
            if self.shared.members.contains_key(&endpoint) {
                self.write_frame((endpoint, flow, seq), &mut writer);
            }
        }
        let keys = self.keyed.changed.take();
        keys.into_iter().for_each(|id| self.write_key(id, &mut writer));
        if std::mem::take(&mut self.keyed.changed.committed) {
            self.write_committed(&mut writer);
        }
        self.keyed.changed.meta = false;
        for journal in std::mem::take(&mut self.idempotency.changed.journals) {
            self.write_journal(journal, &mut writer);
        }
        for (journal, id) in std::mem::take(&mut self.idempotency.changed.ids) {
            let present = self.idempotency.journals.get(&journal).is_some_and(|record| record.ids.contains(&id));
            write_call_id(present, journal, &id, &mut writer);
        }
        self.durable.notes[notes_from..].iter().for_each(|note| write_note(note, &mut writer));
        writer.into_bytes()
    }

    /// Images of everything.
    pub(super) fn write_all(&self) -> Vec<u8> {
        let mut writer = RecordWriter::default();
        self.write_meta(&mut writer);
        for (endpoint, state) in &self.shared.members {
            write_member(state, &mut writer);
            if !mutant::on(Mutant::SnapshotWithoutFrames) {
                for (flow, seq) in state.seen.iter() {
                    self.write_frame((*endpoint, flow, seq), &mut writer);
                }
            }
        }
        (0..self.keyed.key_count()).for_each(|id| self.write_key(id, &mut writer));
        self.write_committed(&mut writer);
        for (journal, record) in &self.idempotency.journals {
            self.write_journal(*journal, &mut writer);
            record.ids.iter().for_each(|id| write_call_id(true, *journal, id, &mut writer));
        }
        self.durable.notes.iter().for_each(|note| write_note(note, &mut writer));
        writer.into_bytes()
    }

    fn write_meta(&self, writer: &mut RecordWriter) {
        let (committed, departed, lost) = self.keyed.commit_state();
        writer.number(META);
        writer.number(self.shared.config.epoch);
        writer.number(committed);
        writer.number(departed);
        writer.number(lost);
    }

    fn write_frame(&self, (endpoint, flow, seq): (u32, u32, u32), writer: &mut RecordWriter) {
        writer.number(FRAME);
        writer.number(endpoint);
        writer.number(flow);
        writer.number(seq);
        let refused = self.keyed.refused_pairs(endpoint, flow, seq);
        writer.number(refused.len() as u64);
        refused.iter().for_each(|index| writer.number(*index));
    }

    fn write_key(&self, id: u32, writer: &mut RecordWriter) {
        let (key, base, overflowed) = self.keyed.key_state(id);
        writer.number(KEY);
        writer.bytes(key.as_bytes());
        writer.signed(base);
        writer.number(overflowed);
    }

    fn write_committed(&self, writer: &mut RecordWriter) {
        for (endpoint, applied) in self.keyed.committed_frames() {
            writer.number(COMMITTED);
            writer.number(*endpoint);
            write_applied(applied, writer);
        }
    }

    fn write_journal(&self, journal: u64, writer: &mut RecordWriter) {
        match self.idempotency.journals.get(&journal) {
            Some(record) => {
                writer.number(JOURNAL);
                writer.number(journal);
                writer.number(record.latest.number);
                writer.number(record.latest.pending_from);
                writer.number(record.latest.earlier_pending.len() as u64);
                record.latest.earlier_pending.iter().for_each(|attempt| writer.number(*attempt));
            }
            None => {
                writer.number(JOURNAL_GONE);
                writer.number(journal);
            }
        }
    }

    /// Applies the images of a batch. `former_epoch` becomes the epoch of the owner that wrote it.
    pub(super) fn load(&mut self, now: Instant, batch: &[u8], former_epoch: &mut Option<u32>) -> Option<()> {
        let mut reader = RecordReader::new(batch);
        while !reader.is_empty() {
            match u8::try_from(reader.number()?).ok()? {
                META => {
                    let epoch = reader.number32()?;
                    let state = (reader.number32()?, reader.flag()?, reader.flag()?);
                    self.keyed.load_commit_state(state, *former_epoch != Some(epoch));
                    *former_epoch = Some(epoch);
                }
                KEY => {
                    let (key, base, overflowed) = (reader.bytes()?, reader.signed()?, reader.flag()?);
                    self.keyed.load_key(key, base, overflowed)?;
                }
                MEMBER => {
                    let (endpoint, mut state) = read_member(&mut reader)?;
                    if let Some(before) = self.shared.members.remove(&endpoint) {
                        // A new incarnation has other sequence numbers.
                        let same = before.member.incarnation == state.member.incarnation;
                        state.seen = if same { before.seen } else { Default::default() };
                    }
                    self.shared.members.insert(endpoint, state);
                }
                MEMBER_GONE => {
                    let endpoint = reader.number32()?;
                    self.shared.members.remove(&endpoint);
                    self.keyed.forget_member(endpoint);
                }
                FRAME => {
                    let (endpoint, flow, seq) = (reader.number32()?, reader.number32()?, reader.number32()?);
                    let refused = reader.list(RecordReader::number32)?;
                    self.shared.members.get_mut(&endpoint)?.seen.record(flow, seq);
                    self.keyed.load_refused((endpoint, flow, seq), refused);
                }
                COMMITTED => {
                    let endpoint = reader.number32()?;
                    self.keyed.load_committed(endpoint, read_applied(&mut reader)?);
                }
                JOURNAL => {
                    let (journal, number, pending_from) = (reader.number()?, reader.number()?, reader.number()?);
                    let earlier_pending = reader.list(RecordReader::number)?;
                    self.idempotency.load_journal(now, journal, (number, pending_from, earlier_pending));
                }
                JOURNAL_GONE => self.idempotency.forget_journal(reader.number()?),
                CALL_ID => {
                    let journal = reader.number()?;
                    self.idempotency.load_id(journal, reader.bytes()?, true)?;
                }
                CALL_ID_GONE => {
                    let journal = reader.number()?;
                    self.idempotency.load_id(journal, reader.bytes()?, false);
                }
                NOTE => self.durable.notes.push(reader.bytes()?.into()),
                _ => return None,
            }
        }
        Some(())
    }
}

fn write_member(state: &MemberState, writer: &mut RecordWriter) {
    let Member { endpoint, incarnation, element, slot_base, flows, .. } = state.member;
    writer.number(MEMBER);
    [endpoint, incarnation, slot_base, flows].into_iter().for_each(|number| writer.number(number));
    [element, state.settled, state.clean].into_iter().for_each(|flag| writer.number(flag));
    writer.bytes(&state.secret);
    writer.number(state.ended.is_some());
    let notices = state.ended.iter().chain(&state.told);
    writer.number(notices.clone().count() as u64);
    for EndedEpoch { epoch, committed, applied } in notices {
        writer.number(*epoch);
        writer.number(*committed);
        write_applied(applied, writer);
    }
}

fn read_member(reader: &mut RecordReader<'_>) -> Option<(u32, MemberState)> {
    let (endpoint, incarnation) = (reader.number32()?, reader.number32()?);
    let (slot_base, flows) = (reader.number32()?, reader.number32()?);
    let (element, settled, clean) = (reader.flag()?, reader.flag()?, reader.flag()?);
    let secret = ResumeSecret::try_from(reader.bytes()?).ok()?;
    let has_ended = reader.flag()?;
    let mut told = reader.list(|reader| {
        let (epoch, committed) = (reader.number32()?, reader.number32()?);
        Some(EndedEpoch { epoch, committed, applied: read_applied(reader)? })
    })?;
    if has_ended && told.is_empty() {
        return None;
    }
    let ended = has_ended.then(|| told.remove(0));
    let member = Member { endpoint, incarnation, element, slot_base, flows, terms: 0 };
    Some((endpoint, MemberState { ended, told, secret, settled, clean, ..MemberState::new(member) }))
}

fn write_applied(applied: &[CommittedFrame], writer: &mut RecordWriter) {
    writer.number(applied.len() as u64);
    for CommittedFrame { flow, seq, overflowed_lanes } in applied {
        [*flow, *seq, *overflowed_lanes].into_iter().for_each(|number| writer.number(number));
    }
}

fn read_applied(reader: &mut RecordReader<'_>) -> Option<Vec<CommittedFrame>> {
    reader.list(|reader| {
        let (flow, seq, overflowed_lanes) = (reader.number32()?, reader.number32()?, reader.number32()?);
        Some(CommittedFrame { flow, seq, overflowed_lanes })
    })
}

fn write_call_id(present: bool, journal: u64, id: &[u8], writer: &mut RecordWriter) {
    writer.number(if present { CALL_ID } else { CALL_ID_GONE });
    writer.number(journal);
    writer.bytes(id);
}

fn write_note(note: &[u8], writer: &mut RecordWriter) {
    writer.number(NOTE);
    writer.bytes(note);
}
