//! Build script: generates tonic's stubs and the manifest. The applications of `netrpc-table7` differ only in their
//! names, so this script generates their package.

use std::fmt::Write as _;
use std::path::PathBuf;

/// Applications of `netrpc-table7`.
const MANY: usize = 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    let (mut methods, mut filters) = (String::new(), String::new());
    for i in 1..=MANY {
        writeln!(methods, r#"  rpc Sum{i}(Part) returns (Sum) {{ option (pathcall.filter) = "many.nf#{i}"; }}"#)?;
        let sum = r#""Precision": 3, "get": "Sum.values", "addTo": "Part.values", "clear": "copy", "modify": "nop""#;
        let count = r#""CntFwd": { "to": "ALL", "threshold": 2, "key": "ClientID" }"#;
        writeln!(filters, r#"{{ "AppName": "B-MANY-{i}", {sum}, {count} }}"#)?;
    }
    let head =
        "syntax = \"proto3\";\npackage many;\nimport \"pathcall/types.proto\";\nimport \"pathcall/options.proto\";";
    let messages = "message Part { pathcall.FPArray values = 1; }\nmessage Sum { pathcall.FPArray values = 1; }";
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
