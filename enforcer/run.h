/* `tessera-enforcer run`: the agent, with all its parts put together. */
#ifndef TESSERA_ENFORCER_RUN_H
#define TESSERA_ENFORCER_RUN_H

/* argv begins behind the word run. Returns the exit status: 0 after a signal to end; 1 where a part failed;
 * 2 for wrong options. */
int en_run_main(int argc, char *const *argv);

#endif
