/* The agent's side of the hook: a unix socket that only root may use. */
#ifndef TESSERA_ENFORCER_HOOK_SERVER_H
#define TESSERA_ENFORCER_HOOK_SERVER_H

#include "base/err.h"
#include "base/log.h"
#include "enforcer/hook_wire.h"
#include "enforcer/pulse.h"

/* Sets the limits; the error's sentence is what the runtime shows. Called from several threads. */
typedef int (*en_limit_fn)(void *ctx, const struct en_limit_request *r, struct err *err);

struct en_hook_server;

/* Listens at path (its folder is made, 0700, where it is missing; a socket left there is replaced; the new
 * one is 0600) and answers on threads of its own. Where a connection cannot be taken (no file descriptor), it
 * waits in the kernel's queue and is tried again a little later. ERR_INVALID: path too long; ERR_IO, ERR_NOMEM.
 * log and pulses may be NULL. */
int en_hook_server_start(const char *path, en_limit_fn fn, void *ctx, struct log *log,
			 struct en_pulses *pulses, struct en_hook_server **ret, struct err *err);
/* Times that a connection could not be taken. */
uint64_t en_hook_server_failures(const struct en_hook_server *s);
/* Ends requests at hand with their answers, removes the socket. NULL is fine. */
void en_hook_server_stop(struct en_hook_server *s);

#endif
