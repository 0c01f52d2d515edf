"""What the tests of all packages share: waiting, running programs, and workspaces with runs in them.

`pytest.ini` puts the folder above on the path of every test. Nothing here is imported by what is tested.
"""
