//! Pathcall rpc.
