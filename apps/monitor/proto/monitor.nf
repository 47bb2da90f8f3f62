{ //monitor.conf: NetRPC Fig. 23, but "SRC": "SERVER" would hand all counts to the handler as well
  "AppName": "MON-1",
  "Precision": 0,
  "get": "nop",
  "addTo": "MonitorRequest.kvs",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": {
    "to": "SRC",
    "threshold": 0,
    "key": "NULL",
  },
}
{ //query.conf
  "AppName": "MON-1",
  "Precision": 0,
  "get": "QueryReply.kvs",
  "addTo": "nop",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": {
    "to": "SRC",
    "threshold": 0,
    "key": "NULL",
  },
}
