{ //cast.conf: a vote of an acceptor; the second of three decides, and all voters hear of it
  "AppName": "PAXOS-1",
  "path": "element",
  "Precision": 0,
  "get": "nop",
  "addTo": "nop",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": {
    "to": "ALL",
    "threshold": 2,
    "key": "Vote.counters",
  },
}
{ //clear.conf: counters of settled slots
  "AppName": "PAXOS-1",
  "path": "element",
  "Precision": 0,
  "get": "nop",
  "addTo": "nop",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": {
    "to": "SRC",
    "threshold": 0,
    "key": "Counters.counters",
  },
}
