// What `build-runsc` adds to a package of gVisor that leads connections to ports inside, and calls from there.

package portforward

import (
	"gvisor.dev/gvisor/pkg/context"
	"gvisor.dev/gvisor/pkg/tcpip"
)

// writeAll writes all of data: a full buffer takes a part of it, and the rest must not be lost.
func writeAll(ctx context.Context, to proxyConn, data []byte, cancel <-chan struct{}) error {
	for len(data) > 0 {
		written, err := to.Write(ctx, data, cancel)
		if err != nil {
			return err
		}
		data = data[written:]
	}
	return nil
}

// endsWriting tells an application inside that nothing more will come, and says whether it could. Whoever has said
// all may still be answered: the other direction ends by itself.
func endsWriting(application proxyConn) bool {
	connection, isNetstack := application.(*netstackConn)
	if isNetstack {
		connection.ep.Shutdown(tcpip.ShutdownWrite)
	}
	return isNetstack
}
