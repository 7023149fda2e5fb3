"""Prints a script that completes jobs, configs and keys: `eval "$(... --job=completion)"`.

For bash, and for zsh through its bashcompinit. It completes `python launch/main.py` and `sgnjax`.
"""

from sgnjax import config as config_lib
from sgnjax.jobs import JOBS

SCRIPT = """# Completion of sgnjax for bash and zsh.
if [ -n "$ZSH_VERSION" ]; then autoload -Uz bashcompinit && bashcompinit; fi

_sgnjax() {
  local line=${COMP_LINE:0:$COMP_POINT}
  local word=${line##* } found=()
  case $word in
    --config=*) found=($(compgen -P --config= -G "${word#--config=}*.py")
                       $(compgen -P --config= -S / -d -- "${word#--config=}")) ;;
    --workdir=*) found=($(compgen -P --workdir= -S / -d -- "${word#--workdir=}")) ;;
    --job=*) found=($(compgen -P --job= -W "JOBS" -- "${word#--job=}")) ;;
    --config.*=*) found=() ;;
    --config.*) found=($(compgen -S = -W "KEYS" -- "$word")) ;;
    *) found=($(compgen -W "--config= --workdir= --job= --config." -- "$word")) ;;
  esac
  COMPREPLY=("${found[@]}")
  # The shell has cut the word at '=' already: what stands before it is not to be written again.
  case $COMP_WORDBREAKS in
    *=*) case $word in *=*) COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*=}"}"}") ;; esac ;;
  esac
  case ${COMPREPLY[0]} in
    *=|*/|--config.) compopt -o nospace 2>/dev/null ;;
  esac
}

_sgnjax_python() { # of Python, launch/main.py alone
  case ${COMP_WORDS[1]} in
    *launch/main.py) [ "$COMP_CWORD" -gt 1 ] && _sgnjax ;;
  esac
}

complete -F _sgnjax sgnjax
complete -o default -F _sgnjax_python python python3
"""


def run(config=None, workdir=None) -> int:
  base = config_lib.load(config_lib.CONFIGS / 'base.py')
  keys = ' '.join(f'--config.{key}' for key in config_lib.leaves(base))
  print(SCRIPT.replace('JOBS', ' '.join(JOBS)).replace('KEYS', keys), end='')
  return 0
