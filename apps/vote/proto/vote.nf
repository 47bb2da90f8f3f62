{ //vote.conf: the vote that makes a majority of five is forwarded, all others end on their way
  "AppName": "VOTE-1",
  "Precision": 0,
  "get": "nop",
  "addTo": "nop",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": {
    "to": "SERVER",
    "threshold": 3,
    "key": "Ballot.kvs",
  },
}
