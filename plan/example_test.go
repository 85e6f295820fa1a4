package plan_test

import (
	"fmt"

	"github.com/chorus-comms/chorus/plan"
)

// A plan is chosen, printed and proved. Elements are 64 bytes, so that six of
// them divide among two ranks.
func Example() {
	q := plan.Request{Collective: plan.AllReduce, World: 2, Rank: 0, Count: 6, ElemSize: 64}
	a, err := plan.Select(q, plan.DefaultMachine(), "ring", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := a.Plan(q)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(p)
	fmt.Println("proved:", plan.Prove(a, q) == nil)
	// Output:
	// all_reduce ring world=2 rank=0 count=6 elem=64
	//    0  send 1 in[0:3]
	//    1  recv_reduce 1 in[3:6] -> out[3:6] final
	//    2  wait
	//    3  send 1 out[3:6]
	//    4  recv 1 -> out[0:3]
	//    5  wait
	// proved: true
}

// An algorithm from outside: rank r hands the data to rank r+1.
func ExampleRegister() {
	plan.Register(plan.Algorithm{
		Name: "hand_on", Collective: plan.Broadcast, Doc: "from each rank to the next, starting at rank 0",
		Supports: func(q plan.Request) error {
			if q.Root != 0 {
				return fmt.Errorf("the root is not rank 0")
			}
			return nil
		},
		Cost: func(q plan.Request, m plan.Machine) float64 {
			return float64(q.World) * (m.Remote.Latency + float64(q.Count*q.ElemSize)/m.Remote.Bandwidth)
		},
		Generate: func(q plan.Request) (*plan.Plan, error) {
			return plan.Build("hand_on", q, func(b *plan.Builder) {
				src := b.Out(0)
				if b.Rank == 0 {
					src = b.In(0)
					b.Copy(b.Count, src, b.Out(0))
				} else {
					b.Recv(b.Rank-1, b.Count, b.Out(0))
					b.Wait()
				}
				if b.Rank+1 < b.World {
					b.Send(b.Rank+1, b.Count, src)
					b.Wait()
				}
			})
		},
	})
	q := plan.Request{Collective: plan.Broadcast, World: 5, Count: 10, ElemSize: 4}
	a, err := plan.Select(q, plan.DefaultMachine(), "broadcast=hand_on", nil)
	fmt.Println(a.Name, err, plan.Prove(a, q))
	q.Root = 1
	_, err = plan.Select(q, plan.DefaultMachine(), "hand_on", nil)
	fmt.Println(err)
	// Output:
	// hand_on <nil> <nil>
	// plan: broadcast hand_on: unsupported request: the root is not rank 0
}
