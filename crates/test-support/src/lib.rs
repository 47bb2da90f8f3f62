//! Services, stubs and processes that Pathcall's tests share.
//!
//! [`stubs`] are generated from `proto/`; [`service`] serves them with handlers that say what they saw; [`store`] is a pool
//! of servers; [`wall`] blocks UDP between a caller and its server. [`process`] runs the programs of the workspace,
//! [`application`] applications, [`calling`] callers of the photo service, and [`element`] a controller and an element.

pub mod application;
pub mod calling;
pub mod element;
pub mod process;
pub mod service;
pub mod store;
pub mod stubs;
pub mod wall;
