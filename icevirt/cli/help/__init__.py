"""Show the help of commands: `command` draws it, `panels` names what is shown together."""
