/* A file of the test's own in /tmp, to be unlinked by it. */
#ifndef TESSERA_TEST_TEMP_FILE_H
#define TESSERA_TEST_TEMP_FILE_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline const char *temp_file(char path[32])
{
	int fd;

	snprintf(path, 32, "/tmp/tessera-XXXXXX");
	fd = mkstemp(path);
	cr_assert_geq(fd, 0);
	close(fd);
	return path;
}

#endif
