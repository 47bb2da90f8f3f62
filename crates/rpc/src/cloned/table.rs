//! What a controller says of a pool, as endpoints need it.

use pathcall_endpoint::clone::Pool;
use pathcall_endpoint::driver::clone::Table;
use pathcall_proto::v1::PoolTable;
use pathcall_wire::TokenKey;
use pathcall_wire::clone::{MAX_SERVERS, switch_id};
use tonic::Status;

/// The table, if its addresses are some.
pub(crate) fn read(said: &PoolTable) -> Result<Table, Status> {
    let nonsense = |what: String| Status::internal(format!("the pool's table says nonsense: {what}"));
    if said.servers.len() > MAX_SERVERS {
        return Err(nonsense(format!("{} servers, expected at most {MAX_SERVERS}", said.servers.len())));
    }
    let address = |text: &str| text.parse().map_err(|_| nonsense(format!("the address {text:?}")));
    let addresses = said.servers.iter().map(|server| address(&server.data_address)).collect::<Result<_, _>>()?;
    let element = match said.element_address.as_str() {
        "" => None,
        text => Some(address(text)?),
    };
    let servers = said.servers.iter().map(|server| server.endpoint).collect();
    let pool = Pool { gaid: said.gaid, version: said.version, servers };
    Ok(Table { pool, addresses, element, switch_id: if said.element == 0 { 0 } else { switch_id(said.element).get() } })
}

/// What signs the pool's frames.
pub(crate) fn key(said: &PoolTable) -> Option<TokenKey> {
    said.token_key.map(|key| TokenKey::new(key.into()))
}

#[cfg(test)]
mod tests {
    use pathcall_proto::v1::PoolServer;

    use super::*;

    #[test]
    fn nonsense_is_refused() {
        let server = |address: &str| PoolServer { endpoint: 7, data_address: address.into(), ..PoolServer::default() };
        let said = |servers, element_address: &str| {
            read(&PoolTable {
                gaid: 1,
                version: 2,
                servers,
                element_address: element_address.into(),
                ..PoolTable::default()
            })
        };
        let table = said(vec![server("10.0.0.1:9")], "").unwrap();
        assert_eq!((table.pool.servers, table.element), (vec![7], None));
        for (servers, element) in
            [(vec![server("here")], ""), (vec![], "there"), (vec![server("10.0.0.1:9"); MAX_SERVERS + 1], "")]
        {
            let refused = said(servers, element).unwrap_err();
            assert!(refused.message().starts_with("the pool's table says nonsense: "), "{refused}");
        }
    }
}
