// Package etcd is a store over etcd 3, where the ranks of a job meet instead of at one of their processes. A program
// that imports it has addresses of the scheme etcd:
//
//	import _ "github.com/chorus-comms/chorus/adapters/etcd"
//
//	CHORUS_STORE=etcd://etcd0:2379,etcd1:2379,etcd2:2379 chorus run -n 4 ./train
//
// or opens the store itself:
//
//	st, err := etcd.Open(ctx, []string{"etcd0:2379", "etcd1:2379"}, etcd.Options{Prefix: "/jobs/train-17"})
//	c, err := comm.New(ctx, comm.WithStore(st), comm.WithRank(rank, size))
//
// # Addresses
//
//	etcd://[USER[:PASSWORD]@]HOST:PORT[,HOST:PORT...][?OPTION=VALUE&...]
//
//	prefix          where the keys are; "/chorus" by default
//	ttl             how long they outlive the last process that uses them, as in 90s; a minute by default
//	password-file   a file with the password
//	tls             on: encrypted, the servers have certificates of an authority that the system trusts; off: not
//	ca              PEM file of the authority of the servers
//	cert, key       PEM files of the certificate to show, and of its key; its name is the user, if the address has none
//	server-name     the name in the servers' certificates, if it isn't their host's
//
// Without an option about TLS, the connections are protected as the job's own are: by CHORUS_TLS_CERT, CHORUS_TLS_KEY
// and CHORUS_TLS_CA. The secret of a job seals what the ranks put into the store, here as in any other.
//
// # In etcd
//
// Below the prefix there are
//
//	data/KEY=       the value of a key, in which % and = are written %25 and %3D
//	data/KEY=N      an entry of a queue
//	lease           the lease of all these keys
//	clients/ID      a process that uses them
//	writers/ID      the last change that a goroutine of such a process has made
//
// The first process grants the lease, and all keep it alive. The process that closes the store last revokes it, and
// the keys are gone. If all of them die, etcd removes the keys when the lease has expired.
//
// # Failures
//
// Invariants:
//
//   - A change is carried out once, or not at all if the call ends with an error that says so. That holds while members
//     of etcd come and go, and if an answer is lost: the change and its number in writers/ID are one transaction, and a
//     repeated transaction finds the number.
//   - Every attempt has a deadline, and every call that of its context or of the store. A call ends with what stood in
//     its way, and the endpoints.
//   - What a user has to mend is no reason to wait: a wrong password, a missing permission, a value that is too large.
//
// etcd's default limit for a request is 1.5 MiB, which bounds a value. A counter to which n ranks add at the same time
// costs some n log n transactions, since etcd has no addition.
package etcd
