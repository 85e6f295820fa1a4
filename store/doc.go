// Package store is where the ranks of a job meet: a small map of byte strings
// that all of them can reach, with a way to wait for a key.
//
//	srv, err := store.ListenTCP(":29500", store.ServerOptions{})   // on one rank
//	st, err := store.DialTCP(ctx, "node0:29500", store.TCPOptions{}) // on the others
//	err = st.Set(ctx, "address/3", []byte("10.0.0.3:4711"))
//	addr, err := st.Get(ctx, "address/0") // waits until rank 0 has set it
//
// Four stores have the same contract, which stands at Store and is checked by
// package storetest: TCPStore with its TCPServer, FileStore, HashStore within one
// process, and PrefixStore, a view of another store. SealedStore is a view that believes
// only what was written with the secret of the job.
//
// TCPStore and FileStore speak the wire protocol and the file format of the
// stores of the same names in torch.distributed.c10d, so that either side of a
// job may be PyTorch. The facts about both were read off running PyTorch
// processes of versions 1.13 to 2.14.
//
// Invariants:
//
//   - Every call ends, by its context or by the store's timeout, and an error at
//     the deadline names the keys that were missing.
//   - A change that a call has confirmed is visible to every later call, by any
//     client.
//   - A caller that waits does not hold up other callers of the same store.
//   - The server trusts nothing that a peer says about lengths.
//   - With a secret (package secure), a client that doesn't prove that it knows it learns and changes nothing, unless
//     the policy admits clients such as PyTorch's, which can't.
package store
