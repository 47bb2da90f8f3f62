#!/usr/bin/env bash
# Network lines of code of each application, beside NetRPC Table 4: the NetFilter, and the lines
# that build the channel. Fails when a filter has more than 26 lines or a channel more than 3.
set -euo pipefail
cd "$(dirname "$0")"

# Lines of each object in a filter file; the largest counts.
filter_lines() { awk '/^{/ { n = 0 } { n++ } /^}/ { if (n > most) most = n } END { print most }' "$1"; }
# Lines that connect and that make the stub, for each channel there is.
channel_lines() {
  local all connects
  all=$(grep -cE 'pathcall::Channel::connect|Client::new\(channel' "$1/src/main.rs")
  connects=$(grep -c 'pathcall::Channel::connect' "$1/src/main.rs")
  echo $(( (all + connects - 1) / connects ))
}

printf '%-10s %-12s %7s %8s   %s\n' application type filter channel 'Table 4: NetRPC endhost + switch; before endhost + switch'
status=0
for row in 'wordcount|AsyncAggr|reduce.nf|166 + 26; 3278 + 4258' 'training|SyncAggr|agtr.nf|173 + 13; 3394 + 5329' \
  'monitor|KeyValue|monitor.nf|162 + 26; 898 + 2360' \
  'lock|Agreement|lock.nf|1453 + 26; 5441 + 931' \
  'vote|Agreement|vote.nf|1453 + 26; 5441 + 931'; do
  IFS='|' read -r app type file paper <<<"$row"
  filter=$(filter_lines "$app/proto/$file")
  channel=$(channel_lines "$app")
  printf '%-10s %-12s %7s %8s   %s\n' "$app" "$type" "$filter" "$channel" "$paper"
  if (( filter > 26 )); then echo "$app: filter of $filter lines" >&2; status=1; fi
  if (( channel > 3 )); then echo "$app: channel of $channel lines" >&2; status=1; fi
done
exit $status
