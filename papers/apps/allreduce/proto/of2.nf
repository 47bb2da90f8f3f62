{ //of2.nf: the values of 2 hosts are added up, and the sums go to all of them
  "AppName": "SUMS-2",
  "Precision": 6,
  "get": "Total.values",
  "addTo": "Part.values",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": {
    "to": "ALL",
    "threshold": 2,
    "key": "ClientID",
  },
}
