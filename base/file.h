/* Whole files in and out. Shell code: it does I/O, the core does not link it. */
#ifndef TESSERA_BASE_FILE_H
#define TESSERA_BASE_FILE_H

#include <stddef.h>

#include "base/err.h"

/* Reads all of path ("-": standard input) into memory: *ret is malloc'ed, has a NUL behind its
 * *ret_len bytes and is the caller's. Pipes and special files are read to their end.
 * ERR_IO names the path and the cause; ERR_TOO_LARGE beyond max bytes; ERR_NOMEM. On errors *ret
 * and *ret_len are untouched. */
int file_read(const char *path, size_t max, char **ret, size_t *ret_len, struct err *err);

/* Puts data in the place of path as a whole: written to a temporary name in the same folder,
 * fsynced, renamed, folder fsynced. Readers see the old content or the new, never a part. A symlink
 * stays, the file it leads to is replaced; a device or pipe is written to.
 * ERR_IO: a regular file is as it was, unless only the folder could not be fsynced. ERR_NOMEM. */
int file_replace(const char *path, const void *data, size_t len, struct err *err);

/* Makes a name that was created, renamed or removed in path's folder durable. ERR_IO, ERR_NOMEM. */
int file_sync_folder(const char *path, struct err *err);

/* Writes all len bytes to fd, past interruptions and short writes. 0, or -1 with errno set. */
int file_write_all(int fd, const void *data, size_t len);

#endif
