{
  "AppName": "T-CLAMP",
  "Precision": 1,
  "modify": { "op": "MAX", "para": 5 },
  "CntFwd": { "to": "SERVER" },
}
{
  "AppName": "T-TALLY",
  "path": "element",
  "get": "Decided.counters",
  "CntFwd": { "to": "SERVER", "threshold": 2, "key": "Ballots.names" },
}
