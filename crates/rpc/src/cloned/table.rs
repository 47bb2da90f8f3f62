//! Conversion of a controller's pool table for endpoints.

use pathcall_driver::clone::PoolAddresses;
use pathcall_endpoint::clone::Pool;
use pathcall_proto::v1::PoolTable;
use pathcall_wire::TokenKey;
use pathcall_wire::clone::{MAX_SERVERS, switch_id};
use tonic::Status;

/// Converts the table; fails if an address is invalid.
pub(crate) fn read(table: &PoolTable) -> Result<PoolAddresses, Status> {
    let invalid = |what: String| Status::internal(format!("invalid pool table: {what}"));
    if table.servers.len() > MAX_SERVERS {
        return Err(invalid(format!("{} servers, expected at most {MAX_SERVERS}", table.servers.len())));
    }
    let address = |text: &str| text.parse().map_err(|_| invalid(format!("the address {text:?}")));
    let addresses = table.servers.iter().map(|server| address(&server.data_address)).collect::<Result<_, _>>()?;
    let element = match table.element_address.as_str() {
        "" => None,
        text => Some(address(text)?),
    };
    let servers = table.servers.iter().map(|server| server.endpoint).collect();
    let pool = Pool { gaid: table.gaid, version: table.version, servers };
    Ok(PoolAddresses {
        pool,
        addresses,
        element,
        switch_id: if table.element == 0 { 0 } else { switch_id(table.element).get() },
    })
}

/// Key of the pool's frames.
pub(crate) fn key(table: &PoolTable) -> Option<TokenKey> {
    table.token_key.map(|key| TokenKey::new(key.into()))
}

#[cfg(test)]
mod tests {
    use pathcall_proto::v1::PoolServer;

    use super::*;

    #[test]
    fn invalid_table_is_refused() {
        let server = |address: &str| PoolServer { endpoint: 7, data_address: address.into(), ..PoolServer::default() };
        let read_with = |servers, element_address: &str| {
            read(&PoolTable {
                gaid: 1,
                version: 2,
                servers,
                element_address: element_address.into(),
                ..PoolTable::default()
            })
        };
        let table = read_with(vec![server("10.0.0.1:9")], "").unwrap();
        assert_eq!((table.pool.servers, table.element), (vec![7], None));
        for (servers, element) in
            [(vec![server("here")], ""), (vec![], "there"), (vec![server("10.0.0.1:9"); MAX_SERVERS + 1], "")]
        {
            let refused = read_with(servers, element).unwrap_err();
            assert!(refused.message().starts_with("invalid pool table: "), "{refused}");
        }
    }
}
