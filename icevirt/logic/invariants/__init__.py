"""What must hold in every repository, as pure checks over decoded values that yield problems.

Which rules readers depend on, and what happens when they are broken, is told where each is checked.
"""
