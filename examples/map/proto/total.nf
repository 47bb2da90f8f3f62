{ "AppName": "visits", "get": "Totals.pages" }
