// Package regroup is how processes agree on a new world: which of them are in it, in which order,
// and whether it has come about. It knows nothing of what the world is for.
//
// Each process has an [Endpoint], a small store that it serves, whose address travels in its [Member] as
// an opaque string. Every listed process, and no other, calls [Endpoint.Agree] with the same list:
//
//	endpoint, err := regroup.Open(regroup.Options{})
//	me := endpoint.Member(regroup.OldPlace{World: "train", Rank: 3, Size: 4})
//	handle := me.String()                                          // goes to the others, who parse it
//	err = endpoint.Agree(ctx, uuid, members, func(ctx context.Context, st store.Store) error {
//		return openLinks(ctx, st)                                  // with the others, who do the same
//	})
//
// Agree has two phases, led by the first member of the list at its own store. In the first, everyone prepares, watched
// by the leader, which is watched by everyone: the connections over which they wait break if one of them dies. When
// all have prepared the leader decides; until then any member may call it off, and both is one
// comparison and exchange of one key of the leader's store. If the leader dies in between, the others resolve it among
// themselves (resolve.go).
//
// Ranks of a world that don't know which of them are left call [Survivors.Run]: the lowest of them gathers the others,
// and lists the members for an attempt. A newcomer waits for such a list in [Invited].
//
// Invariants:
//
//   - Of the processes that survive an attempt, either all get nil or all get an error; see resolve.go for
//     what that rests on.
//   - Agree ends by the deadline of its context and a grace for resolving. Its error is an [*Error] that names the
//     members at fault.
//   - An attempt that failed leaves an endpoint ready for the next, with a fresh uuid.
//   - Nothing that comes from another member is used before it was checked.
package regroup
