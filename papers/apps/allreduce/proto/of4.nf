{ //of4.nf: the values of 4 hosts are added up, and the sums go to all of them
  "AppName": "SUMS-4",
  "Precision": 6,
  "get": "Total.values",
  "addTo": "Part.values",
  "clear": "copy",
  "modify": "nop",
  "CntFwd": {
    "to": "ALL",
    "threshold": 4,
    "key": "ClientID",
  },
}
