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
{
  "AppName": "T-STREAM",
  "path": "element",
  "addTo": "Words.kvs",
  "get": "Counted.kvs",
}
{
  "AppName": "T-STREAM-LOAD",
  "path": "element",
  "addTo": "Words.kvs",
}
{
  "AppName": "T-STREAM-LOAD",
  "get": "Counted.kvs",
}
{
  "AppName": "T-STREAM-SUM",
  "path": "element",
  "Precision": 1,
  "get": "Part.values",
  "addTo": "Part.values",
  "clear": "copy",
  "CntFwd": { "to": "ALL", "threshold": 2, "key": "ClientID" },
}
{
  "AppName": "T-STREAM-VOTE",
  "path": "element",
  "get": "Decided.counters",
  "CntFwd": { "to": "SERVER", "threshold": 2, "key": "Ballots.names" },
}
{
  "AppName": "T-STREAM-CLAMP",
  "Precision": 1,
  "modify": { "op": "MAX", "para": 5 },
  "CntFwd": { "to": "SERVER" },
}
