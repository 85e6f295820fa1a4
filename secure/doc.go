// Package secure is how the processes of a job know each other: a secret that all of them have and nobody else.
//
//	policy, err := secure.Load(cfg)                    // what the environment says
//	conn, err = policy.Client(ctx, conn)               // encrypted, if TLS is on
//	err = policy.Secret.Initiate(conn, []byte("link")) // both ends prove that they know the secret
//
// The other end calls Server and, having read the four bytes "link", Respond. Nothing of the secret is sent: each side
// chooses 32 random bytes, and proves by an HMAC-SHA256 over both, the hello and its own role that it knows the secret.
// Transcripts can't be replayed, since the other side's bytes are new each time, nor reflected, since the roles differ.
// Whoever connects proves itself first, so a listener tells a stranger nothing but random bytes, or what it wants: a
// proof, or TLS. What differs between two processes of a job is thus known to both at once, and never to be taken for
// an absence.
//
// The proof says who is at the other end when a connection begins. It doesn't hide or protect what is sent afterwards
// from who can read or change packets on their way; TLS does. Within TLS the proofs cover the keys of the connection
// (RFC 9266), so that certificates need no authority: each process makes its own, and who relays a connection is found
// out.
//
// Records that go through somebody else's store, such as the addresses of ranks in PyTorch's TCPStore, are sealed:
// Seal appends an HMAC over name and value, and Open refuses what nobody with the secret has written.
//
// Invariants:
//
//   - The secret is in no message, error or log; String doesn't show it.
//   - Initiate and Respond read a fixed number of bytes, whoever sends them, and compare in constant time.
//   - What hasn't proved itself costs a listener a bounded number of connections and a bounded rate of work ([Gate]).
package secure
