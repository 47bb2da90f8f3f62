{ //lock.conf
  "AppName": "LS-1",
  "Precision": 0,
  "get": "nop",
  "addTo": "nop",
  "clear": "nop",
  "modify": "nop",
  "CntFwd": {
    "to": "SRC",
    "threshold": 1,
    "key": "LockRequest.kvs",
  },
}
{ //release.conf
  "AppName": "LS-1",
  "Precision": 0,
  "get": "nop",
  "addTo": "nop",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": {
    "to": "SRC",
    "threshold": 0,
    "key": "ReleaseRequest.kvs",
  },
}
