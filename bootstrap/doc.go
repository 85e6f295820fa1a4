// Package bootstrap answers the first questions of a rank: who am I, and where do
// I meet the others?
//
//	info, err := bootstrap.Detect(os.Getenv)
//	if errors.Is(err, bootstrap.ErrNoLauncher) {
//		info = bootstrap.Info{Size: 1} // a world of one, if the caller wants that
//	}
//	st, err := bootstrap.Open(ctx, info, bootstrap.Options{})
//	addresses, err := bootstrap.Exchange(ctx, st, info.Rank, info.Size, []byte(mine))
//
// Detect reads the variables of chorus run, torchrun, Open MPI, PMI and PMIx
// launchers, PALS, Slurm, and indexed jobs of Kubernetes; the table of methods in
// detect.go has the order. Arguments that a program was given are for the caller
// to put into Info: they win over everything here.
//
// Open needs MASTER_ADDR only if the ranks are spread over several hosts and the
// launcher does not say where rank 0 is: torchrun and Slurm do say, and on one
// host nothing is needed.
//
// Kubernetes: an indexed job sets JOB_COMPLETION_INDEX. Its manifest has to add
// WORLD_SIZE and either MASTER_ADDR or JOB_SERVICE, the name of the headless
// service that is also the subdomain of the pods.
//
// Invariants:
//
//   - An error about a variable names it and its value; an error about absent
//     ranks is a *MissingRanksError that names them.
//   - Nothing stays behind: no files, and no sockets once rank 0 has gone.
package bootstrap
