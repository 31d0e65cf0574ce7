//! One voter, whole: the metadata role, the sessions of nodes, and the admin API, as `palisade sidecar run` runs it.

use crate::admin::AdminServer;
use crate::role::{MetadataRole, StartError, VoterConfig};
use crate::session::SessionServer;

/// A running voter. Stop it with [`Voter::stop`]; dropping it ends it without waiting.
#[derive(Debug)]
pub struct Voter {
    role: MetadataRole,
    sessions: SessionServer,
    admin: AdminServer,
}

impl Voter {
    /// Starts the role, then the sessions, then the admin API, inside the current tokio runtime.
    ///
    /// # Errors
    ///
    /// [`StartError`] names the file or address; what had started is stopped again.
    pub async fn start(config: VoterConfig) -> Result<Voter, StartError> {
        let address = config.admin_listen;
        let bound = tokio::net::TcpListener::bind(address).await;
        let listen = |source| StartError::Listen { address, source };
        let listener = bound.map_err(listen)?;
        let role = MetadataRole::start(config).await?;
        let admin = match AdminServer::start_on(listener, std::sync::Arc::new(role.clone())) {
            Ok(admin) => admin,
            Err(source) => {
                role.stop().await;
                return Err(listen(source));
            }
        };
        let sessions = SessionServer::start(role.clone());
        Ok(Voter { role, sessions, admin })
    }

    /// The role, for those in the same process.
    #[must_use]
    pub fn role(&self) -> &MetadataRole {
        &self.role
    }

    /// The sessions, for those in the same process.
    #[must_use]
    pub fn sessions(&self) -> &SessionServer {
        &self.sessions
    }

    /// Stops everything in order; afterwards its directory and its addresses are free.
    pub async fn stop(self) {
        self.admin.stop().await;
        self.sessions.stop().await;
        self.role.stop().await;
    }
}
