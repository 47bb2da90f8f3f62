//! Build script: generates tonic's stubs and the manifest. The applications of `netrpc-table7` differ only in their
//! names, so this script generates their package.

use std::path::PathBuf;

/// Applications of `netrpc-table7`.
const MANY: usize = 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let (methods, filters) = many();
    let head =
        "syntax = \"proto3\";\npackage many;\nimport \"pathcall/types.proto\";\nimport \"pathcall/options.proto\";";
    let messages = "message Part { pathcall.FPArray values = 1; }\nmessage Sum { pathcall.FPArray values = 1; }\n\
        message Pairs { pathcall.STRINTMap pairs = 1; }\nmessage Done {}\nmessage Wanted {}";
    std::fs::write(out.join("many.proto"), format!("{head}\n{messages}\nservice Many {{\n{methods}}}\n"))?;
    std::fs::write(out.join("many.nf"), filters)?;

    let here = PathBuf::from("proto");
    let own = ["bench.proto", "shadows.proto", "shapes.proto"].map(|name| here.join(name));
    let protos: Vec<_> = own.into_iter().chain([out.join("many.proto")]).collect();
    pathcall_build::compile(&protos, &[&here, &out])?;
    // Stubs with prost's codec, without Pathcall.
    let stock = pathcall_build::configure().tonic(|tonic| tonic.codec_path("tonic_prost::ProstCodec"));
    Ok(stock.compile(&["stock.proto", "etcd.proto"].map(|name| here.join(name)), &[&here])?)
}

/// Methods and filters of the applications of `netrpc-table7`, the four kinds of the paper in turn: sums of arrays
/// (SyncAgtr), counts (AsyncAgtr), counts that are read (KeyValue), locks (Agreement).
fn many() -> (String, String) {
    let (mut methods, mut filters, mut filter) = (String::new(), String::new(), 0);
    for i in 1..=MANY {
        let of_kind: &[(&str, &str, &str, &str)] = match (i - 1) % 4 {
            0 => &[(
                "Sum",
                "Part",
                "Sum",
                r#""Precision": 3, "get": "Sum.values", "addTo": "Part.values",
                "clear": "copy", "CntFwd": { "to": "ALL", "threshold": 2, "key": "ClientID" }"#,
            )],
            1 => &[("Count", "Pairs", "Done", r#""addTo": "Pairs.pairs""#)],
            2 => &[
                ("Report", "Pairs", "Done", r#""addTo": "Pairs.pairs""#),
                ("Read", "Wanted", "Pairs", r#""get": "Pairs.pairs""#),
            ],
            _ => &[
                ("Lock", "Pairs", "Done", r#""CntFwd": { "to": "SRC", "threshold": 1, "key": "Pairs.pairs" }"#),
                (
                    "Release",
                    "Pairs",
                    "Done",
                    r#""clear": "copy", "CntFwd": { "to": "SRC", "threshold": 0, "key": "Pairs.pairs" }"#,
                ),
            ],
        };
        for (method, request, reply, text) in of_kind {
            filter += 1;
            let option = format!("option (pathcall.filter) = \"many.nf#{filter}\";");
            methods += &format!("  rpc {method}{i}({request}) returns ({reply}) {{ {option} }}\n");
            filters += &format!("{{ \"AppName\": \"B-MANY-{i}\", {text} }}\n");
        }
    }
    (methods, filters)
}
