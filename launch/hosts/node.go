package hosts

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chorus-comms/chorus/launch"
	"github.com/chorus-comms/chorus/launch/internal/process"
)

// Orders are what Hosts tells the launcher of one host.
type Orders struct {
	Node, Nodes int
	Name        string        // of the host, as the user calls it
	Endpoint    string        // of the rendezvous; empty: Flags say it, or there is one node
	Secret      string        // text of the job's secret
	Dir         string        // working directory
	Env         []string      // variables that are set there
	Flags       []string      // of chorus run
	Program     []string      // the program and its arguments
	Color       bool          // colour the prefix of each line
	Input       bool          // standard input follows, for rank 0
	LostAfter   time.Duration // silence that means that Hosts, or the way to it, is gone
}

// ending is how a launcher has ended.
type ending struct {
	Failure *launch.Failure // the job's, which has been explained
	Text    string          // an error that has not been printed; empty: none
	Code    int             // exit status that goes with Text
	Usage   bool            // Text is about the command line
}

// secretVariables are those that Orders.Secret replaces.
var secretVariables = []string{"CHORUS_SECRET", "CHORUS_SECRET_FILE"}

// Node is the main function of a launcher that Hosts has started, on this host or another. It reads from in what Hosts
// says, its orders first. It writes to out what the ranks and the launcher print. build makes the job of the orders, in
// the directory and the environment that they name. When in ends or falls silent, the ranks of this node are
// ended: no process remains when the connection is lost.
func Node(in io.Reader, out io.Writer, build func(*Orders) (*launch.Job, error)) error {
	w := &frameWriter{w: out}
	signals, stdout, stderr := process.Attach(&frameOutput{w, frameStdout}, &frameOutput{w, frameStderr})
	if _, err := io.WriteString(out, frameMagic); err != nil {
		return err
	}
	alive := func() bool { return w.write(frameBeat, nil) == nil }
	beats := process.Tick(beatUnordered, alive)
	r := bufio.NewReader(in)
	o, err := readOrders(r)
	beats.Stop()
	if err != nil {
		return err
	}
	n := &commanded{orders: o, in: r, out: w, signals: signals}
	beats = process.Tick(max(o.LostAfter/10, time.Millisecond), alive)
	err = n.run(stdout, stderr, build)
	beats.Stop()
	return n.end(err)
}

// beatUnordered is the interval at which a launcher says that it's alive while it doesn't know LostAfter.
const beatUnordered = 100 * time.Millisecond

// readOrders reads the first frame.
func readOrders(r *bufio.Reader) (*Orders, error) {
	for {
		f, err := readFrame(r)
		if err != nil {
			return nil, fmt.Errorf("launch: no orders: %w", err)
		}
		if f.kind == frameBeat {
			continue
		}
		o := new(Orders)
		if err := json.Unmarshal(f.data, o); f.kind != frameOrders || err != nil {
			return nil, errors.New("launch: the first frame isn't that of orders")
		}
		return o, o.check()
	}
}

// check says what orders lack, or what no orders say.
func (o *Orders) check() error {
	switch {
	case len(o.Program) == 0 || o.Program[0] == "":
		return errors.New("launch: the orders name no program")
	case o.Nodes < 1 || o.Nodes > maxListed || o.Node < 0 || o.Node >= o.Nodes:
		return fmt.Errorf("launch: the orders are for node %d of %d", o.Node, o.Nodes)
	case o.Dir == "":
		return errors.New("launch: the orders name no directory")
	case o.LostAfter <= 0:
		return fmt.Errorf("launch: the orders say that %v of silence mean a loss", o.LostAfter)
	}
	return nil
}

// commanded is a launcher that another process commands.
type commanded struct {
	orders  *Orders
	in      *bufio.Reader
	out     *frameWriter
	signals chan os.Signal
	heard   atomic.Int64 // when the last frame came, in nanoseconds
	cancel  context.CancelCauseFunc
	pieces  chan []byte // of standard input; nil: there is none
}

func (n *commanded) run(stdout, stderr io.Writer, build func(*Orders) (*launch.Job, error)) error {
	o := n.orders
	if err := os.Chdir(o.Dir); err != nil {
		return fmt.Errorf("launch: the directory in which chorus run was started must be on all hosts: %w", err)
	}
	for _, name := range secretVariables {
		os.Unsetenv(name)
	}
	for _, e := range o.Env {
		name, value, _ := strings.Cut(e, "=")
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("launch: variable %s: %w", name, err)
		}
	}
	j, err := build(o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	n.cancel = cancel
	j.Signals, j.Stdout, j.Stderr = n.signals, stdout, stderr
	j.Name, j.Secret, j.Color, j.Stdin = o.Name, o.Secret, o.Color, nil
	j.Serving = func(endpoint string) { n.out.write(frameServing, []byte(endpoint)) }
	if o.Input {
		r, w, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("launch: standard input: %w", err)
		}
		defer r.Close()
		j.Stdin, n.pieces = r, make(chan []byte, 1)
		go n.feed(w)
	}
	if err := n.out.write(frameBegun, nil); err != nil {
		return fmt.Errorf("launch: %w", err)
	}
	n.heard.Store(time.Now().UnixNano())
	go n.listen()
	watch := process.Tick(max(o.LostAfter/10, time.Millisecond), n.check)
	defer watch.Stop()
	return j.Run(ctx)
}

// listen handles frames until there are no more.
func (n *commanded) listen() {
	for {
		f, err := readFrame(n.in)
		if err != nil {
			n.disconnected("has ended")
			return
		}
		n.heard.Store(time.Now().UnixNano())
		switch f.kind {
		case frameSignal:
			if len(f.data) == 1 {
				n.signal(syscall.Signal(f.data[0]))
			}
		case frameInput:
			if n.pieces != nil {
				n.pieces <- f.data // there is room: the next comes only when this one was taken
			}
		case frameCanceled:
			failure := new(launch.Failure)
			if json.Unmarshal(f.data, failure) == nil {
				n.cancel(failure)
			}
		}
	}
}

// signal gives the job a signal that Hosts has got.
func (n *commanded) signal(sig syscall.Signal) {
	select {
	case n.signals <- sig:
	default: // it has enough of them
	}
}

// check looks for silence.
func (n *commanded) check() bool {
	silent := time.Since(time.Unix(0, n.heard.Load()))
	if n.orders.LostAfter <= 0 || silent <= n.orders.LostAfter {
		return true
	}
	n.disconnected("has been silent for " + process.Seconds(silent))
	return false
}

// disconnected ends the job.
func (n *commanded) disconnected(how string) {
	n.cancel(&launch.Failure{Kind: launch.NodeLost, Node: n.orders.Node, Host: n.orders.Name,
		Told: true, Reason: "the connection to its launcher from the one that started it " + how})
}

// feed writes standard input to rank 0, and asks for more.
func (n *commanded) feed(w *os.File) {
	defer w.Close()
	for piece := range n.pieces {
		if len(piece) == 0 {
			return
		}
		if _, err := w.Write(piece); err != nil {
			return // nobody reads it any more
		}
		if n.out.write(frameMore, nil) != nil {
			return
		}
	}
}

// end says how the launcher has ended.
func (n *commanded) end(err error) error {
	var e ending
	switch f, failed := errors.AsType[*launch.Failure](err); {
	case failed:
		e.Failure = f
	case err != nil:
		e = ending{Text: err.Error(), Code: launch.ExitCode(err), Usage: errors.Is(err, launch.ErrArgument)}
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return n.out.write(frameEnd, data)
}
