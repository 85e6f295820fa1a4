// Command chorus starts jobs, examines machines, and shows what Chorus does.
//
//	chorus run --nproc-per-node 4 ./train    start four ranks, watch over them, explain a failure
//	chorus bench all_reduce                  measure a collective and check its results
//	chorus demo                              train a network on handwritten digits with four ranks
//	chorus plan all_reduce --world 4         print and prove the steps of a collective
//	chorus doctor                            what this machine offers, and every setting with its origin
//	chorus version                           what this binary was built from
//	chorus completion bash                   completion for a shell
//	chorus man DIR                           manual pages
//
// Each command is one file with a function newXCmd that returns a *cobra.Command; root.go lists them all.
//
// Commands print results on standard output and everything else on standard error. They exit with status 0 when they
// did what they were asked, with that of the failed rank for run, and else with 1.
package main
