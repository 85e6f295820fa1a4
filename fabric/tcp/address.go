package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/chorus-comms/chorus/fabric"
	"github.com/chorus-comms/chorus/secure"
)

// listen binds this rank's listeners. They are at the address or interface that was asked for. Else
// there are two: at the loopback address for peers on this host, and at the address from which the
// rendezvous is reached for all others. Ranks whose rendezvous is on the loopback need only the first.
func listen(o options, rendezvous string) ([]net.Listener, error) {
	var want []netip.Addr
	switch {
	case o.addr.IsValid():
		want = []netip.Addr{o.addr}
	case o.ifaces != nil:
		a, err := interfaceAddr(o.ifaces)
		if err != nil {
			return nil, err
		}
		want = []netip.Addr{a}
	default:
		want = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
		a, err := routeTo(rendezvous)
		if err == nil && (!a.IsValid() || a.IsLoopback() && !secure.Loopback(hostOf(rendezvous))) {
			a, err = firstAddr()
		}
		if err != nil {
			return nil, fmt.Errorf("tcp: looking for this host's address: %w", err)
		}
		if a.IsValid() && !a.IsLoopback() {
			want = append(want, a)
		}
	}
	var all []net.Listener
	var errs []error
	for _, a := range want {
		l, err := bind(a, o)
		// The address is there: without it others couldn't come.
		if fabric.Exhausted(err) || errors.Is(err, syscall.EADDRINUSE) {
			for _, l := range all {
				l.Close()
			}
			return nil, err
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all = append(all, l)
	}
	if len(all) == 0 {
		// A host without IPv4.
		l, err := bind(netip.IPv6Loopback(), o)
		if err != nil || o.addr.IsValid() || o.ifaces != nil {
			return nil, errors.Join(errs...)
		}
		all = append(all, l)
	}
	return all, nil
}

func bind(a netip.Addr, o options) (net.Listener, error) {
	var l net.Listener
	var err error
	for port := o.portLow; port <= o.portHigh; port++ { // 0 to 0 if any will do
		if l, err = net.Listen("tcp", net.JoinHostPort(a.String(), strconv.Itoa(port))); err == nil {
			return l, nil
		}
	}
	if o.portHigh > 0 && errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("all ports from %d to %d are taken: %w", o.portLow, o.portHigh, err)
	}
	return nil, fmt.Errorf("tcp: listening on %v: %w", a, err)
}

// routeTo returns the address of this host from which packets to the rendezvous
// leave; the zero one if it doesn't know. Connecting a UDP socket sends nothing.
func routeTo(rendezvous string) (netip.Addr, error) {
	host := hostOf(rendezvous)
	if host == "" {
		return netip.Addr{}, nil
	}
	c, err := net.Dial("udp", net.JoinHostPort(host, "9"))
	if err != nil {
		return netip.Addr{}, onlyWant(err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

// onlyWant returns the error of a look-up that this process lacks the means for: there may be something to find.
func onlyWant(err error) error {
	if fabric.Exhausted(err) {
		return err
	}
	return nil
}

func hostOf(rendezvous string) string {
	if h, _, err := net.SplitHostPort(rendezvous); err == nil {
		return h
	}
	return rendezvous
}

// firstAddr returns the address of the first network interface that has one for
// other hosts to use; the zero one if there is none.
func firstAddr() (netip.Addr, error) {
	all, err := net.Interfaces()
	if err != nil {
		return netip.Addr{}, onlyWant(err)
	}
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		if a, ok := usable(i); ok {
			return a, nil
		}
	}
	return netip.Addr{}, nil
}

// interfaceAddr returns the address of the first of some interfaces that has one; each is a name, or a network such
// as 10.1.0.0/16 that the address is in.
func interfaceAddr(wanted []string) (netip.Addr, error) {
	var errs []error
	for _, w := range wanted {
		a, err := named(w)
		if network, perr := netip.ParsePrefix(w); perr == nil {
			a, err = within(network)
		}
		if err == nil {
			return a, nil
		}
		errs = append(errs, fmt.Errorf("tcp: interface %q: %w", w, err))
	}
	return netip.Addr{}, errors.Join(errs...)
}

func named(name string) (netip.Addr, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return netip.Addr{}, err
	}
	a, ok := usable(*i)
	if !ok {
		return netip.Addr{}, errors.New("it has no address to listen on")
	}
	return a, nil
}

// within returns this host's first address in a network.
func within(network netip.Prefix) (netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && network.Contains(ip.Unmap()) && !ip.IsLinkLocalUnicast() {
				return ip.Unmap(), nil
			}
		}
	}
	return netip.Addr{}, errors.New("no address of this host is in this network")
}

// published returns the addresses that other ranks get: those of the listeners, but where some are to be advertised,
// these with the port of the listener for other hosts instead of its own. The loopback stays, for peers on this host.
func published(listeners []net.Listener, advertise []netip.Addr) []netip.AddrPort {
	var all []netip.AddrPort
	for i, l := range listeners {
		a := l.Addr().(*net.TCPAddr).AddrPort()
		if i < len(listeners)-1 || len(advertise) == 0 {
			all = append(all, a)
			continue
		}
		for _, ip := range advertise {
			all = append(all, netip.AddrPortFrom(ip, a.Port()))
		}
	}
	return all
}

// usable returns an interface's first IPv4 address, else its first IPv6 one.
// Link-local addresses are only valid together with an interface, so they don't count.
func usable(i net.Interface) (netip.Addr, bool) {
	addrs, err := i.Addrs()
	if err != nil {
		return netip.Addr{}, false
	}
	var best netip.Addr
	for _, a := range addrs {
		n, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		ip, ok := netip.AddrFromSlice(n.IP)
		if ip = ip.Unmap(); !ok || ip.IsLinkLocalUnicast() || ip.IsMulticast() {
			continue
		}
		if ip.Is4() {
			return ip, true
		}
		if !best.IsValid() {
			best = ip
		}
	}
	return best, best.IsValid()
}

// dial tries a peer's addresses in turn. A want of descriptors is this rank's own, whatever the other addresses would
// have said.
func (f *Fabric) dial(ctx context.Context, p *peer) (*net.TCPConn, error) {
	var errs []error
	for _, a := range p.addrs {
		d := net.Dialer{Timeout: dialTimeout, KeepAlive: -1}
		if f.o.addr.IsValid() || f.o.ifaces != nil {
			d.LocalAddr = &net.TCPAddr{IP: f.listeners[0].Addr().(*net.TCPAddr).IP}
		}
		nc, err := d.DialContext(ctx, "tcp", a.String())
		if err == nil {
			return nc.(*net.TCPConn), nil
		}
		if fabric.Exhausted(err) {
			return nil, err
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}
