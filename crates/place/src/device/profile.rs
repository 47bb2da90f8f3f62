//! What devices and links of this machine can do, as it is measured.
