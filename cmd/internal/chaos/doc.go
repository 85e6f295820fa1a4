// Package chaos runs random programs on Chorus, breaks them on purpose, and checks which rank is blamed.
//
// A [Program] is drawn from a seed: a world, its fabric, communicators split from each other, operations of every kind,
// and one fault ([Make]). All ranks carry it out. Then the reports of the survivors are held to the library's promises:
// every rank has returned, each error names the rank at fault, and no result is wrong.
//
//	c := chaos.Campaign{Mode: chaos.Virtual, Rounds: 1000, Seed: 1, Command: []string{"chorus", "chaos", "--worker"}}
//	result, err := c.Run(ctx)
//	fmt.Println(result.Hangs, result.WrongResults, result.Misnamed)
//
// In virtual rounds ranks are goroutines on the fabric mem, in the time of package testing/synctest: waiting costs
// nothing, and a world that can't go on is found at once. In real ones they are processes, which signals stop and kill.
// Both are carried out by processes that call [Work], so that a crash is a finding as well, and not the end.
//
// Invariants: a program depends on its seed, the mode and the lists to draw from alone. Values are small integers,
// exact in every dtype, so that results are compared bit by bit. A communicator that the rank at fault isn't a member
// of must not notice anything.
package chaos
