// Package plan holds collectives as data. A generator is a pure function from a Request to a Plan,
// the steps of one rank. A plan is proved before it runs, priced by a cost model, and printed as
// text. Other packages execute it, on any fabric: nothing in this package moves a byte.
//
//	q := plan.Request{Collective: plan.AllReduce, World: 4, Rank: 1, Count: 1000, ElemSize: 4}
//	a, err := plan.Select(q, plan.DefaultMachine(), "", nil) // or a hint: "ring"
//	p, err := a.Plan(q)
//	fmt.Print(p)             // the steps as text; Parse reads them back
//	err = plan.Prove(a, q)   // all ranks' plans, under the least favourable timing
//
// # Steps
//
// Two-sided steps (Send, Recv, RecvReduce, Wait) need nothing but messages.
// One-sided ones refer to memory of other ranks on the same host: Stage, which
// the ranks share in any case, or In and Out, if the plan is Mapped and the
// caller's memory can be mapped. Notify and Await order such accesses.
//
// # Algorithms
//
// Each generator stands in a file of its name: ring, recursive doubling and
// halving, trees, Bruck, pairwise and linear exchange, dissemination; direct
// (mapped memory), staged and split (ordinary memory of one host), two-level
// (several hosts). Register adds one from outside, with a Builder to write it:
//
//	plan.Register(plan.Algorithm{Name: "mine", Collective: plan.Broadcast,
//		Generate: func(q plan.Request) (*plan.Plan, error) {
//			return plan.Build("mine", q, func(b *plan.Builder) { ... })
//		}})
//
// # Invariants
//
//   - Generators are pure, and all ranks choose the same one: Select looks at
//     nothing that only one rank knows.
//   - Every rank's result has the same bits. Reductions on one host that are
//     one-sided fold in the order of the ranks, in one step, so that all of
//     them agree with each other.
//   - A plan writes its In only where it is Out, and leaves no rank before the
//     others are done with that rank's In and Out.
//   - A rank writes only its own Stage, and only after its own plan has begun.
//
// All functions are safe for concurrent use. A plan is never changed once it's made.
package plan
