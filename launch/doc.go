// Package launch starts the ranks of a job, watches over them, and says why the job failed.
//
//	job := &launch.Job{
//		Command:      []string{"./train", "--epochs", "3"},
//		RanksPerNode: 4,
//		Stdout:       os.Stdout,
//		Stderr:       os.Stderr,
//	}
//	err := job.Run(ctx)
//	os.Exit(launch.ExitCode(err))
//
// Each rank gets torchrun's environment, so that programs written for torchrun run unchanged. The launcher of the first
// node hosts the job's TCPStore at MASTER_ADDR:MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE=True); no rank binds a port
// for it. With several nodes, one launcher runs on each; they meet in a second store, the rendezvous, at a known
// endpoint. If the job's store demands proofs then, MASTER_ADDR:MASTER_PORT is each launcher's own relay to it, for
// PyTorch's clients, and CHORUS_STORE_ADDR the store.
//
// With [Job.MinNodes] the nodes of a job may change: each attempt has a world of its own, of those that are there. The
// launchers meet at the first one's store, whose end ends the job, or in [Job.Store].
//
// Package launch/hosts starts such launchers on several hosts, by ssh.
//
// Invariants:
//
//   - When Run returns, every rank it started, and every process in the ranks' process groups, is dead and reaped, and
//     all their output has been written. So are the processes that ranks have left behind elsewhere with the
//     environment they had, and, with [Job.Adopt], those without.
//   - A launcher that is killed takes its ranks along: the kernel kills each rank with the thread that started it, and
//     the guard (see [Guard]) kills what the ranks had started themselves.
//   - Launchers watch over each other. One that dies is missed at once, one that falls silent after [Job.LostAfter];
//     the others say which node it was and since when, end their ranks, and wait no longer for it.
//   - The world of each attempt of an elastic job is decided once, by compare-and-set. Only failures of ranks count
//     against MaxRestarts, in attempts that have lost no node.
//   - All ranks of a job run in the same attempt. When one fails, all are stopped, on every node, before any is started
//     again.
//   - Each attempt has a TCPStore of its own, so that no key of an earlier attempt is ever seen.
//   - The launchers' stores admit only clients that know the job's secret, and PyTorch's clients of the same user on
//     the same host. A launcher of one node makes a secret for each job, in memory that ends with it; several need one
//     unless they meet on the loopback.
//   - The first failure of an attempt is the one that is explained, the same one on every node.
//   - Output is passed on in whole lines, never lost, never mixed within a line.
package launch
