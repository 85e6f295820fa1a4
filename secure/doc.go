// Package secure authenticates the processes of a job to each other, by a secret that only they have.
//
//	policy, err := secure.Load(cfg)                    // what the environment says
//	conn, err = policy.Client(ctx, conn)               // encrypted, if TLS is on
//	err = policy.Secret.Initiate(conn, []byte("link")) // both ends prove that they know the secret
//
// The other end calls Server and, having read the four bytes "link", Respond. Nothing of the secret is sent: each side
// chooses 32 random bytes, and proves by an HMAC-SHA256 over both, the hello and its own role that it knows the secret.
// Transcripts can't be replayed, since the other side's bytes are new each time, nor reflected, since the roles differ.
// The initiator proves itself first. So an unauthenticated peer learns nothing from a listener but random bytes, or
// that it demands a proof or TLS. Two processes of a job whose settings differ both learn so at once, and neither takes
// the other for missing.
//
// The proof says who is at the other end when a connection begins. It doesn't protect what is sent afterwards from
// being read or changed on its way; TLS does. Within TLS the proofs cover the keys of the connection (RFC 9266), so
// that certificates need no authority: each process makes its own, and a man in the middle is found out.
//
// Records in a store that is not Chorus', such as the addresses of ranks in PyTorch's TCPStore, are sealed: Seal
// appends an HMAC over name and value, and Open refuses records that were written without the secret.
//
// Invariants:
//
//   - The secret is in no message, error or log; String doesn't show it.
//   - Initiate and Respond read a fixed number of bytes from any peer, and compare in constant time.
//   - Unauthenticated connections cost a listener a bounded number of connections and a bounded rate of work
//     ([AcceptLimiter]).
package secure
