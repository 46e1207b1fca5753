#include "base/listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG 4096 /* the kernel's own bound may be lower */
#define FILES 65536

/* Cuts "ADDR:PORT" in two. */
static int split(const char *text, char *host, size_t host_cap, const char **ret_port,
		 struct err *err)
{
	const char *colon = strrchr(text, ':');
	size_t len = colon != NULL ? (size_t)(colon - text) : 0;

	if (colon == NULL || colon[1] == '\0' ||
	    strspn(colon + 1, "0123456789") != strlen(colon + 1))
		return err_set(err, ERR_INVALID, "\"%s\" is not ADDR:PORT", text);
	if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
		text++;
		len -= 2;
	} else if (memchr(text, ':', len) != NULL) {
		return err_set(err, ERR_INVALID, "\"%s\": write IPv6 as [ADDR]:PORT", text);
	}
	if (strlen(colon + 1) > 5 || strtoul(colon + 1, NULL, 10) > 65535)
		return err_set(err, ERR_INVALID, "\"%s\": the port is not in 0 to 65535", text);
	if (len >= host_cap)
		return err_set(err, ERR_INVALID, "\"%s\": the address is too long", text);
	memcpy(host, text, len);
	host[len] = '\0';
	*ret_port = colon + 1;
	return 0;
}

static int open_socket(const struct addrinfo *ai)
{
	int one = 1, fd;

	fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, ai->ai_protocol);
	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
	    bind(fd, ai->ai_addr, ai->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0) {
		int saved = errno;

		close(fd);
		errno = saved;
		return -1;
	}
	return fd;
}

static int describe(int fd, bool tls, char *url, size_t cap, struct err *err)
{
	struct sockaddr_storage addr = {0};
	socklen_t len = sizeof(addr);
	char host[256], port[16];

	if (getsockname(fd, (struct sockaddr *)&addr, &len) < 0 ||
	    getnameinfo((struct sockaddr *)&addr, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return err_set(err, ERR_IO, "getsockname: %s", strerror(errno));
	snprintf(url, cap, addr.ss_family == AF_INET6 ? "http%s://[%s]:%s" : "http%s://%s:%s",
		 tls ? "s" : "", host, port);
	return 0;
}

static int resolve(const char *text, bool with_port, struct addrinfo **ret, struct err *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
				 .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	const char *port = NULL;
	char host[256] = "";
	int rc = split(text, host, sizeof(host), &port, err);

	if (rc < 0)
		return rc;
	rc = getaddrinfo(host[0] != '\0' ? host : NULL, with_port ? port : "0", &hints, ret);
	return rc != 0 ? err_set(err, ERR_INVALID, "\"%s\": %s", text, gai_strerror(rc)) : 0;
}

/* On the first of its addresses that can be listened on. */
static int listen_on(const char *text, bool with_port, int *ret_fd, struct err *err)
{
	struct addrinfo *list = NULL;
	int rc = resolve(text, with_port, &list, err), fd = -1;

	if (rc < 0)
		return rc;
	for (const struct addrinfo *ai = list; ai != NULL && fd < 0; ai = ai->ai_next)
		fd = open_socket(ai);
	freeaddrinfo(list);
	if (fd < 0)
		return err_set(err, ERR_IO, "cannot listen on %s: %s", text, strerror(errno));
	*ret_fd = fd;
	return 0;
}

int listen_check(const char *text, struct err *err)
{
	int fd = -1, rc = listen_on(text, false, &fd, err);

	if (rc == 0)
		close(fd);
	return rc;
}

int listen_open(const char *text, bool tls, int *ret_fd, char *url, size_t url_cap, struct err *err)
{
	int fd = -1, rc = listen_on(text, true, &fd, err);

	if (rc < 0)
		return rc;
	rc = describe(fd, tls, url, url_cap, err);
	if (rc < 0) {
		close(fd);
		return rc;
	}
	*ret_fd = fd;
	return 0;
}

uint64_t listen_more_files(void)
{
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r) != 0)
		return UINT64_MAX;
	if (r.rlim_cur < FILES && r.rlim_cur < r.rlim_max) {
		r.rlim_cur = r.rlim_max < FILES ? r.rlim_max : FILES;
		if (setrlimit(RLIMIT_NOFILE, &r) != 0 && getrlimit(RLIMIT_NOFILE, &r) != 0)
			return UINT64_MAX;
	}
	return r.rlim_cur;
}
