//! `testbed-function`: SNAT and routes in XDP between two namespaces, compared with nftables and the kernel's routes,
//! in packets per second of the middle's processor time: see `namespace_pair`.

use anyhow::Result;

use crate::harness::{Bench, Figure, Kind};

pub(crate) const FIGURE: Figure = Figure {
    name: "testbed-function",
    about: "SNAT and routes in XDP between hosts, beside the kernel's own",
    kind: Kind::Measured,
    run,
};

#[cfg(feature = "xdp")]
fn run(bench: &mut Bench) -> Result<()> {
    measured::run(bench)
}

#[cfg(not(feature = "xdp"))]
fn run(bench: &mut Bench) -> Result<()> {
    bench.print_note("not made: the bench was built without XDP (XDP=1)");
    Ok(())
}

#[cfg(feature = "xdp")]
mod measured {
    use anyhow::{Context, Result, ensure};
    use pathcall_testbed::Testbed;

    use crate::function::frames::{FRAME_MAX, has_correct_checksums};
    use crate::function::namespace_pair::NamespacePair;
    use crate::function::packet_cost::{FLOWS, FLOWS_QUICK, LoadedFunction, POOL};
    use crate::function::parts::HOP;
    use crate::function::routes::{self, Prefix};
    use crate::harness::{Bench, Better, Metric};

    /// Expected ratio of packets per processor time to nftables.
    const FLOOR: f64 = 3.0;
    /// Frames per turn.
    const PACKETS: u32 = 1 << 20;
    const PACKETS_QUICK: u32 = 1 << 14;
    const LENGTHS: [usize; 2] = [60, FRAME_MAX];
    const ROUTES_QUICK: usize = 20_000;
    /// Packets that are checked.
    const LOOKED_AT: usize = 64;
    const NFTABLES: &str = "ip route add 198.51.100.0/24 via 10.77.2.2 dev h2
nft -f - <<'END'
table ip nat {
  chain post {
    type nat hook postrouting priority 100
    oifname h2 snat to 192.0.2.1-192.0.2.14
  }
}
END
";

    pub(super) fn run(bench: &mut Bench) -> Result<()> {
        if let Err(error) = Testbed::builder().hosts(2).up() {
            bench.print_note(&format!("not made: {error}"));
            return Ok(());
        }
        for length in LENGTHS {
            snat(bench, length)?;
        }
        let table: Vec<Prefix> = routes::table(bench).into_iter().filter(|route| travels(*route)).collect();
        let table = &table[..bench.size(table.len(), ROUTES_QUICK)];
        gateway(bench, table)
    }

    fn snat(bench: &mut Bench, length: usize) -> Result<()> {
        let ready = LoadedFunction::pooled(bench.size(FLOWS, FLOWS_QUICK))?;
        let ours = NamespacePair::new(ready.flows(), length)?.element(ready.by_interfaces()?)?;
        let theirs = NamespacePair::new(ready.flows(), length)?.kernel(NFTABLES)?;
        for (side, name) in [(&ours, "ours"), (&theirs, "nftables")] {
            let seen = side.seen(LOOKED_AT)?;
            let right = |frame: &&Vec<u8>| {
                let source = u32::from_be_bytes([frame[26], frame[27], frame[28], frame[29]]);
                frame.len() == length && source & !15 == POOL && has_correct_checksums(frame)
            };
            let count = seen.iter().filter(right).count();
            ensure!(count == LOOKED_AT, "{name}: {count} of {LOOKED_AT} packets are right");
        }
        let case = format!("SNAT, {} flows, {length} bytes", ready.flows().len());
        let metric = |case| Metric::new(case, "nftables", "packets/CPU s", Better::Higher);
        compare(bench, metric(format!("{case}, a buffer made at the far end")), &ours, &theirs)?;
        let ours = ours.ends_early()?;
        compare(bench, metric(case).expect(FLOOR), &ours, &theirs)
    }

    fn gateway(bench: &mut Bench, table: &[Prefix]) -> Result<()> {
        let flows = bench.size(FLOWS, FLOWS_QUICK);
        let first = LoadedFunction::gateway(flows, table, flows)?;
        let mut script = String::from("ip -batch - <<'END'\n");
        for (value, len) in table {
            script += &format!("route add {}/{len} via 10.77.2.2 dev h2\n", std::net::Ipv4Addr::from_bits(*value));
        }
        script += "END\n";
        let theirs = NamespacePair::new(first.flows(), LENGTHS[0])?.kernel(&script).context("the kernel's routes")?;
        let all = LoadedFunction::gateway(flows, table, table.len())?;
        for (ready, placed) in [(&first, flows), (&all, table.len())] {
            let ours = NamespacePair::new(ready.flows(), LENGTHS[0])?.element(ready.by_interfaces()?)?;
            let seen = ours.seen(LOOKED_AT)?;
            let right = |frame: &&Vec<u8>| {
                frame[..6] == HOP.to_be_bytes()[2..] && frame[22] == 63 && has_correct_checksums(frame)
            };
            let count = seen.iter().filter(right).count();
            ensure!(count == LOOKED_AT, "{count} of {LOOKED_AT} packets are right");
            let seen = theirs.seen(LOOKED_AT)?;
            let count = seen.iter().filter(|frame| frame[22] == 63 && has_correct_checksums(frame)).count();
            ensure!(count == LOOKED_AT, "the kernel: {count} of {LOOKED_AT} packets are right");
            let ours = ours.ends_early()?;
            let case = format!("{} routes, {placed} of them in the element", table.len());
            let metric = Metric::new(case, "the kernel's routes, all", "packets/CPU s", Better::Higher);
            compare(bench, metric, &ours, &theirs)?;
        }
        Ok(())
    }

    fn compare(bench: &mut Bench, metric: Metric, ours: &NamespacePair, theirs: &NamespacePair) -> Result<()> {
        let packets = bench.size(PACKETS, PACKETS_QUICK);
        bench.compare([metric], || Ok([ours.rate(packets)?]), || Ok([theirs.rate(packets)?]))
    }

    /// True if packets to these addresses can pass: not the testbed's own addresses, nor addresses that links reject.
    fn travels((value, _): Prefix) -> bool {
        !matches!(value >> 24, 0 | 10 | 127 | 224..)
    }
}
