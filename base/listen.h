/* A listening TCP socket from "ADDR:PORT". */
#ifndef TESSERA_BASE_LISTEN_H
#define TESSERA_BASE_LISTEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* text: "127.0.0.1:8080", "[::1]:8080", "localhost:0", ":8080" (all addresses). *ret_fd is the caller's;
 * url gets "http://ADDR:PORT" with the port in use. ERR_INVALID: not of that form, or no such
 * address; ERR_IO. */
int listen_open(const char *text, bool tls, int *ret_fd, char *url, size_t url_cap,
		struct err *err);
/* Would that address be taken? Nothing listens afterwards, and the port is not tried: another process of
 * ours may have it. Errors as listen_open(). */
int listen_check(const char *text, struct err *err);
/* Raises the limit of open files to 65,536, or as far as it may be; never lowers it: the 1,024 that a runtime gives
 * are few for connections. Returns what it is now; UINT64_MAX where that cannot be known. */
uint64_t listen_more_files(void);

#endif
