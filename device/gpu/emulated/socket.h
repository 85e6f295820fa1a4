// Whole messages over a socket.
#pragma once

#include <cerrno>
#include <cstddef>
#include <sys/socket.h>
#include <unistd.h>

namespace emulated {

inline bool send_all(int fd, const void *data, size_t n) {
	for (auto p = static_cast<const char *>(data); n > 0;) {
		ssize_t k = send(fd, p, n, MSG_NOSIGNAL);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		p += k, n -= size_t(k);
	}
	return true;
}

inline bool receive_all(int fd, void *data, size_t n) {
	for (auto p = static_cast<char *>(data); n > 0;) {
		ssize_t k = recv(fd, p, n, 0);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return false;
		p += k, n -= size_t(k);
	}
	return true;
}

} // namespace emulated
